"""Every shard file is byte for byte what the slow serial oracle saves, however the work is cut and done."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import oracle
from support.corpus import Corpus, plain_texts, take_documents, whole_modules
from support.runs import (
    JAXFORMER,
    NANOGPT,
    command,
    difference,
    leftovers,
    make_job,
    read_index,
    run_command,
    shard_files,
)
from tokenization_worker.errors import SpecError
from tokenization_worker.run.run import Options, run_job

pytestmark = pytest.mark.slow

SHARD_TOKENS = 40_000

LAYOUTS = {"jaxformer": JAXFORMER, "nanogpt": NANOGPT}
PROCESSES = [1, 2, 4]
RANGES = ["64Ki", "256Ki", None]
ENGINES = ["reference", "fastokens"]
WAYS = list(itertools.product(PROCESSES, RANGES, ENGINES))
FEW_WAYS = [(1, "64Ki", "fastokens"), (2, None, "reference"), (4, "256Ki", "fastokens"), (2, "64Ki", "reference")]

Expect = Callable[[str, Corpus, int], Path]


@pytest.fixture(scope="session")
def expect(tmp_path_factory: pytest.TempPathFactory) -> Expect:
    """The oracle's folder for a layout, a corpus and a shard size; made once each."""
    made: dict[tuple[str, Path, int], Path] = {}

    def make(layout: str, corpus: Corpus, shard_tokens: int) -> Path:
        key = (layout, corpus.folder, shard_tokens)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("oracle")
            if layout == "jaxformer":
                oracle.write_jaxformer(made[key], corpus.documents, shard_tokens=shard_tokens, test_shards=3)
            else:
                oracle.write_nanogpt(made[key], corpus.documents, shard_tokens=shard_tokens)
        return made[key]

    return make


def run(
    corpus: Corpus, output: Path, *layers: dict[str, Any], shard_tokens: int = SHARD_TOKENS, way: tuple[Any, ...] = ()
) -> None:
    processes, range_bytes, engine = way or (2, "64Ki", "reference")
    job = make_job(
        corpus.folder,
        output,
        *layers,
        output={"shards": {"tokens": shard_tokens}},
        maxQuarantined=corpus.quarantined,
        **({} if range_bytes is None else {"rangeBytes": range_bytes}),
    )
    finished = run_job(job, options=Options(processes=processes, engine=engine, sample_one_in=64))
    assert finished.documents_written == len(corpus.documents)
    assert finished.documents_quarantined == corpus.quarantined
    assert leftovers(output) == []


def name_way(way: tuple[Any, ...]) -> str:
    processes, range_bytes, engine = way
    return f"{processes}p-{range_bytes or 'default'}-{engine}"


@pytest.mark.sampled(7)
@pytest.mark.parametrize("way", WAYS, ids=name_way)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_mixed_formats_give_the_oracles_shards_in_every_way(
    layout: str, way: tuple[Any, ...], mixed: Corpus, expect: Expect, tmp_path: Path
) -> None:
    run(mixed, tmp_path / "out", LAYOUTS[layout], way=way)
    assert difference(tmp_path / "out", expect(layout, mixed, SHARD_TOKENS)) is None


@pytest.mark.sampled(5)
@pytest.mark.parametrize("way", WAYS, ids=name_way)
def test_one_large_file_gives_the_oracles_shards_however_it_is_cut(
    way: tuple[Any, ...], large_file: Corpus, expect: Expect, tmp_path: Path
) -> None:
    run(large_file, tmp_path / "out", JAXFORMER, way=way)
    assert difference(tmp_path / "out", expect("jaxformer", large_file, SHARD_TOKENS)) is None


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", FEW_WAYS, ids=name_way)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_many_tiny_files_give_the_oracles_shards(
    layout: str, way: tuple[Any, ...], tiny: Corpus, expect: Expect, tmp_path: Path
) -> None:
    run(tiny, tmp_path / "out", LAYOUTS[layout], shard_tokens=4_000, way=way)
    assert difference(tmp_path / "out", expect(layout, tiny, 4_000)) is None


def pad_to_multiple(name: str, texts: list[str], shard_tokens: int) -> list[str]:
    """The documents and one more that fills the last shard to its last token."""
    missing = -(len(oracle.delimited(name, texts)) + 1) % shard_tokens
    padded = [*texts, " a" * missing]
    assert len(oracle.delimited(name, padded)) % shard_tokens == 0
    return padded


def straddling(name: str, shard_tokens: int) -> list[str]:
    """Documents of less than a shard, so placed that the border after the last leading shard lies inside one."""
    border = (3 if name == "cl100k_base" else 1) * shard_tokens
    texts = [text for text in take_documents(200_000, odd=False) if 1_200 < len(text) < 2_400]
    while True:
        ends = np.cumsum([len(oracle.delimited(name, [text])) for text in texts])
        starts = np.append(0, ends[:-1])
        if ((starts + 50 < border) & (border < ends - 50) & (ends - starts < shard_tokens)).any():
            return texts
        del texts[0]


HARD_TEXTS: dict[str, Callable[[str], list[str]]] = {
    "exact-multiple-of-a-shard": lambda name: pad_to_multiple(name, take_documents(60_000), 1_000),
    "document-longer-than-shards": lambda name: [*take_documents(9_000), *whole_modules(1), *take_documents(9_000)],
    "only-one-document": lambda name: whole_modules(1),
    "document-straddles-splits": lambda name: straddling(name, 1_000),
    "empty-documents-first-and-last": lambda name: ["", "", *take_documents(60_000), "", "", ""],
    "only-empty-documents": lambda name: [""] * 3_500,
    "one-token-in-the-last-shard": lambda name: [*pad_to_multiple(name, take_documents(60_000), 1_000), ""],
}


@pytest.mark.sampled(5, of=lambda case: case["hard"])
@pytest.mark.parametrize("way", FEW_WAYS, ids=name_way)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("hard", HARD_TEXTS)
def test_hard_cases_give_the_oracles_shards(
    hard: str, layout: str, way: tuple[Any, ...], corpora: Path, expect: Expect, tmp_path: Path
) -> None:
    name = {"jaxformer": "cl100k_base", "nanogpt": "gpt2"}[layout]
    folder = corpora / f"{hard}-{name}"
    texts = HARD_TEXTS[hard](name)
    corpus = Corpus(folder, texts) if folder.exists() else plain_texts(folder, texts)
    run(corpus, tmp_path / "out", LAYOUTS[layout], shard_tokens=1_000, way=way)
    assert difference(tmp_path / "out", expect(layout, corpus, 1_000)) is None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("position", ["Before", "After", "None"])
@pytest.mark.parametrize(("dtype", "numpy_dtype"), [("UInt16", np.uint16), ("UInt32", np.uint32)])
def test_delimiter_and_dtype_give_the_oracles_shards(
    position: str, dtype: str, numpy_dtype: type[np.unsignedinteger], mixed: Corpus, tmp_path: Path
) -> None:
    layer = {"tokenizer": {"name": "gpt2", "delimiter": {"position": position}}, "output": {"dtype": dtype}}
    run(mixed, tmp_path / "out", layer, way=(2, "64Ki", "fastokens"))
    oracle.write_one_split(
        tmp_path / "oracle",
        mixed.documents,
        name="gpt2",
        dtype=numpy_dtype,
        shard_tokens=SHARD_TOKENS,
        position=position,
    )
    assert difference(tmp_path / "out", tmp_path / "oracle") is None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("position", ["Before", "After", "None"])
@pytest.mark.parametrize("way", FEW_WAYS[:3], ids=name_way)
def test_splits_by_hash_give_the_oracles_shards(
    position: str, way: tuple[Any, ...], mixed: Corpus, tmp_path: Path
) -> None:
    splits = [{"name": "validation", "share": "0.7%"}, {"name": "test", "share": "12.5%"}, {"name": "train"}]
    layer = {"tokenizer": {"name": "gpt2", "delimiter": {"position": position}}, "output": {"splits": splits}}
    run(mixed, tmp_path / "out", layer, way=way)
    oracle.write_by_hash(
        tmp_path / "oracle",
        mixed.documents,
        name="gpt2",
        dtype=np.uint16,
        shard_tokens=SHARD_TOKENS,
        shares={"validation": Fraction(7, 1000), "test": Fraction(125, 1000), "train": Fraction(1)},
        position=position,
    )
    assert difference(tmp_path / "out", tmp_path / "oracle") is None
    assert {path.partition("/")[0] for path in shard_files(tmp_path / "out")} == {"validation", "test", "train"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("processes", PROCESSES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_command_line_gives_the_oracles_shards(
    layout: str, processes: int, mixed: Corpus, expect: Expect, tmp_path: Path
) -> None:
    output = {"shards": {"tokens": SHARD_TOKENS}}
    job = make_job(mixed.folder, tmp_path / "out", LAYOUTS[layout], output=output, maxQuarantined=mixed.quarantined)
    arguments = command(job, tmp_path, "--processes", str(processes), "--rangeBytes", "64Ki", "--engine", "fastokens")
    done = run_command(arguments)
    assert done.returncode == 0, done.stderr
    assert difference(tmp_path / "out", expect(layout, mixed, SHARD_TOKENS)) is None
    assert leftovers(tmp_path / "out") == []


TOO_SMALL = {
    "the leading shards take exactly everything": 3_000,
    "the last leading shard is not even full": 2_500,
    "the estimate alone says so": 700,
}


@pytest.mark.parametrize("tokens", TOO_SMALL.values(), ids=TOO_SMALL)
def test_a_corpus_too_small_for_its_last_split_is_refused(tokens: int, tmp_path: Path) -> None:
    corpus = plain_texts(tmp_path / "source", [" a" * 99] * (tokens // 100))
    assert len(oracle.delimited("cl100k_base", corpus.documents)) == tokens
    with pytest.raises(SpecError) as caught:
        run(corpus, tmp_path / "out", JAXFORMER, shard_tokens=1_000)
    assert caught.value.reason == "SplitEmpty"
    assert not (tmp_path / "out" / "index.json").exists()

    job = make_job(corpus.folder, tmp_path / "cli", JAXFORMER, output={"shards": {"tokens": 1_000}})
    done = run_command(command(job, tmp_path))
    assert done.returncode == 2
    assert "SplitEmpty" in done.stderr
    assert "'train'" in done.stderr


def test_one_token_more_than_the_leading_shards_is_accepted(tmp_path: Path) -> None:
    corpus = plain_texts(tmp_path / "source", [*[" a" * 99] * 30, ""])
    run(corpus, tmp_path / "out", JAXFORMER, shard_tokens=1_000)
    oracle.write_jaxformer(tmp_path / "oracle", corpus.documents, shard_tokens=1_000, test_shards=3)
    assert difference(tmp_path / "out", tmp_path / "oracle") is None
    assert np.load(tmp_path / "out" / "train" / "train_0000.npy").tolist() == [100_257]


def test_a_small_corpus_without_splits_gives_one_short_shard(tmp_path: Path) -> None:
    corpus = plain_texts(tmp_path / "source", ["Hello, world!"])
    run(corpus, tmp_path / "out", shard_tokens=100_000_000)
    assert shard_files(tmp_path / "out") == {"train/train_000000.npy"}
    shard = np.load(tmp_path / "out" / "train" / "train_000000.npy")
    assert shard.dtype == np.uint16
    assert shard.tolist() == [50256, 15496, 11, 995, 0]


def test_the_digest_does_not_depend_on_how_the_run_was_done(mixed: Corpus, tmp_path: Path) -> None:
    digests = set()
    for number, way in enumerate(FEW_WAYS):
        run(mixed, tmp_path / str(number), NANOGPT, way=way)
        digests.add(read_index(tmp_path / str(number))["digest"])
    assert len(digests) == 1
