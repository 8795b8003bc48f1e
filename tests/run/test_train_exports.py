"""The files of trained tokenizers: each size, each file, and each library that reads it gives the same ids."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
import tokenizers
from tokenizers import models

from support.corpus import take_documents
from support.forked_commands import TOKJOB
from support.runs import make_job, run_command
from support.trainings import SPECIALS, inline, train, training, write_source
from tokenization_worker import run_job, verify
from tokenization_worker.errors import ChangedError
from tokenization_worker.events import CountsMerged, Event, Warned
from tokenization_worker.run.training.train import train_tokenizer

SIZES = [300, 450, 700]
EXPORTS = ["merges.txt", "ranks.tiktoken", "tokenizer.json", "vocab.json"]

Encode = Callable[[str], list[int]]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_source(tmp_path_factory.mktemp("exports") / "source")


def unseen_texts(folder: Path, n_soups: int) -> list[str]:
    """Random tokens of a tokenizer, all bytes that text may have, and documents that no training has read."""
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    numbers = np.random.default_rng(0).integers(0, library.get_vocab_size(), (n_soups, 7)).tolist()
    characters = [*range(0x800), *range(0x800, 0xD800, 0x100), *range(0xE000, 0x110000, 0x1000)]
    texts = [*(library.decode(ids, skip_special_tokens=False) for ids in numbers), "".join(map(chr, characters))]
    assert len({byte for text in texts for byte in text.encode()}) == 256 - 13  # C0, C1, and F5 to FF are in no text
    return [*texts, "日本語 \U0001f600\0\x85", " " * 999, *take_documents(60_000, first=900)]


def readers_of(folder: Path, facts: dict[str, Any]) -> dict[str, Encode]:
    """Each export, read by its own library."""
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    library.encode_special_tokens = True
    ranks = [line.split() for line in (folder / "ranks.tiktoken").read_bytes().splitlines()]
    encoding = tiktoken.Encoding(
        "trained",
        pat_str=facts["pattern"],
        mergeable_ranks={b64decode(text): int(number) for text, number in ranks},
        special_tokens=facts["specialTokens"],
    )
    merges = tokenizers.Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    merges.pre_tokenizer = library.pre_tokenizer
    assert encoding.n_vocab == library.get_vocab_size() == merges.get_vocab_size() == facts["vocabularySize"]
    return {
        "tokenizer.json": lambda text: library.encode(text).ids,
        "ranks.tiktoken": encoding.encode_ordinary,
        "merges.txt": lambda text: merges.encode(text).ids,
    }


def merges_of(folder: Path) -> list[str]:
    return (folder / "merges.txt").read_text().splitlines()[1:]


@pytest.mark.parametrize(
    ("pattern", "layout", "n_soups"),
    [
        ("Gpt2", "Gpt2", 2_000),
        ("O200k", "BytesFirst", 500),
        pytest.param("Gpt2", "Gpt2", 20_000, marks=pytest.mark.exhaustive),
        pytest.param("O200k", "BytesFirst", 20_000, marks=pytest.mark.exhaustive),
        pytest.param("Cl100k", "Gpt2", 20_000, marks=pytest.mark.exhaustive),
        pytest.param("Gpt2", "BytesFirst", 20_000, marks=pytest.mark.exhaustive),
    ],
)
def test_every_export_of_every_size_gives_the_same_ids(
    pattern: str, layout: str, n_soups: int, source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    fields = {"tokenizer__pattern": pattern, "tokenizer__layout": layout}
    train(source, output, tokenizer__vocabSize=SIZES, **fields)
    index = json.loads((output / "index.json").read_bytes())
    assert sorted(index["files"]) == sorted(f"{size}/{name}" for size in SIZES for name in EXPORTS)
    assert [facts["file"] for facts in index["tokenizers"]] == [f"{size}/tokenizer.json" for size in SIZES]
    for size, facts in zip(SIZES, index["tokenizers"], strict=True):
        folder = output / str(size)
        readers = readers_of(folder, facts)
        library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        for text in unseen_texts(folder, n_soups):
            found = {name: encode(text) for name, encode in readers.items()}
            ids = found["tokenizer.json"]
            assert library.decode(ids, skip_special_tokens=False) == text
            assert all(each == ids for each in found.values()), text
        first_special = 256 if layout == "BytesFirst" else size - len(SPECIALS)
        assert facts["specialTokens"] == {token: first_special + number for number, token in enumerate(SPECIALS)}
        names = json.loads((folder / "vocab.json").read_bytes())
        assert sorted(names.values()) == list(range(size))
        assert {token: names[token] for token in SPECIALS} == facts["specialTokens"]
        assert merges_of(folder) == merges_of(output / "700")[: size - 256 - len(SPECIALS)]
    train(source, tmp_path / "alone", tokenizer__vocabSize=450, **fields)
    for name in EXPORTS:
        assert (tmp_path / "alone" / name).read_bytes() == (output / "450" / name).read_bytes()


@pytest.mark.parametrize("layout", ["Gpt2", pytest.param("BytesFirst", marks=pytest.mark.exhaustive)])
def test_a_job_takes_a_chosen_size_from_either_file(layout: str, source: Path, tmp_path: Path) -> None:
    finished = train(source, tmp_path / "out", tokenizer__vocabSize=SIZES, tokenizer__layout=layout)
    facts = json.loads((tmp_path / "out" / "index.json").read_bytes())["tokenizers"][1]
    chosen = finished.tokenizers[1]
    job = make_job(source, tmp_path / "dataset", tokenizer={"name": None, "uri": chosen.uri})
    assert run_job(job).documents_written
    assert not verify(str(tmp_path / "dataset")).findings
    made = json.loads((tmp_path / "dataset" / "index.json").read_bytes())
    assert made["tokenizer"]["fingerprint"] == chosen.fingerprint == facts["fingerprint"]
    ranks = {
        "name": None,
        "uri": str(tmp_path / "out" / "450" / "ranks.tiktoken"),
        "pattern": facts["pattern"],
        "specialTokens": facts["specialTokens"],
        "delimiter": {"token": SPECIALS[0]},
    }
    run_job(make_job(source, tmp_path / "by-ranks", tokenizer=ranks))
    assert shard_bytes(tmp_path / "by-ranks") == shard_bytes(tmp_path / "dataset")


def shard_bytes(dataset: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(dataset.glob("train/*.npy"))]


def test_ranks_that_tiktoken_reads_otherwise_are_left_out(source: Path, tmp_path: Path) -> None:
    seen: list[Event] = []
    train_tokenizer(
        training(source, tmp_path / "out", tokenizer__vocabSize=300, tokenizer__regex=r"\p{L}+|\s+|\p{N}"),
        executor=inline(),
        on_progress=seen.append,
    )
    assert [event for event in seen if isinstance(event, Warned) and "ranks.tiktoken left out" in event.message]
    assert not (tmp_path / "out" / "ranks.tiktoken").exists()
    assert (tmp_path / "out" / "tokenizer.json").exists()


def test_merges_that_their_file_cannot_hold_are_left_out(tmp_path: Path) -> None:
    """A merge whose line begins as the header does is passed over by those that read the file."""
    (tmp_path / "a.txt").write_text("#version " * 50 + "#version0 " * 10)
    seen: list[Event] = []
    train_tokenizer(
        training(
            tmp_path / "a.txt",
            tmp_path / "out",
            source={"uris": [str(tmp_path / "a.txt")], "format": "Text"},
            tokenizer={"vocabSize": 265, "regex": r"\S+|\s"},
            holdout="0%",
        ),
        executor=inline(),
        on_progress=seen.append,
    )
    assert [event for event in seen if isinstance(event, Warned) and "vocab.json and merges.txt" in event.message]
    assert sorted(path.name for path in (tmp_path / "out").glob("*.*")) == [
        "counts.npz",
        "index.json",
        "ranks.tiktoken",
        "tokenizer.json",
    ]


# ---- folders of sizes


def test_an_unfinished_training_of_several_sizes_is_cleaned(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    train(source, output, tokenizer__vocabSize=SIZES)
    (output / "index.json").unlink()
    (output / "450" / "notes.txt").write_text("mine")
    done = run_command([str(TOKJOB), "clean", str(output)])
    assert done.returncode == 0, done.stderr
    assert [path for path in output.rglob("*") if path.is_file()] == [output / "450" / "notes.txt"]


def test_a_file_of_another_program_in_a_folder_is_not_written_over(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"

    def put(event: Event) -> None:
        if isinstance(event, CountsMerged):
            (output / "450").mkdir()
            (output / "450" / "vocab.json").write_text("{}")

    with pytest.raises(ChangedError, match=r"450/vocab\.json is there, but no training of tokjob"):
        train_tokenizer(training(source, output, tokenizer__vocabSize=SIZES), executor=inline(), on_progress=put)
    assert (output / "450" / "vocab.json").read_text() == "{}"
    assert not (output / "300").exists()


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ("700,300", "write each size once, the smallest first: [300, 700]"),
        ("300,300", "write each size once"),
        ("256,300", "at least 257"),
        ("300,1000000000", "at most 16777216"),
        ("1,2,3,4,5,6,7,8,9", "at least 257"),
        (",".join(map(str, range(300, 309))), "a list of 1 to 8 sizes"),
        ("300,", "expected a whole number"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(sizes: str, words: str, tmp_path: Path) -> None:
    done = run_command([str(TOKJOB), "train", "--source", "x", "--output", "y", "--vocab-size", sizes])
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr
