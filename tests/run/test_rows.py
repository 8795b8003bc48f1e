"""Rows of one length: every shard is what a loop over single tokens makes, in every format, with its parts."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pytest

from support.engine.inline import inline, run_with_stops
from support.forked_commands import TOKJOB
from support.format_oracle import SUFFIXES, files_of
from support.oracle import encoding
from support.row_oracle import Document, RowShard, places_of, shards_of, splits_of
from support.runs import command, difference, make_job, read_index, run_command
from support.tokenizer_models import ADDED_FLAGS, write_letters
from tokenization_worker import open_dataset, run_job
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.errors import SpecError
from tokenization_worker.events import Warned
from tokenization_worker.inspect.preview import preview_run
from tokenization_worker.inspect.show import show_documents
from tokenization_worker.planning.row_estimate import RowEstimate

FORMATS = ["Npy", "Raw", "LlmC", "Megatron", "WebDataset"]
WORDS = ["alpha", "beta", "gamma", "ä", "日本", "0", "\n", " "]
END = {"gpt2": 50256, "cl100k_base": 100257, "bytes": 256}
SPLITS: dict[str, list[dict[str, Any]]] = {
    "one": [{"name": "train"}],
    "leading": [{"name": "test", "shards": 2}, {"name": "train"}],
    "shares": [{"name": "test", "share": "25%"}, {"name": "train"}],
}
ARGUMENTS: dict[str, dict[str, Any]] = {"one": {}, "leading": {"leading": 2}, "shares": {"share": Fraction(1, 4)}}


class Source(NamedTuple):
    """A corpus: where it is, and (file, position of the record, text) of each document."""

    folder: Path
    records: list[tuple[int, int, str]]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("source")
    chance = random.Random(18)
    records: list[tuple[int, int, str]] = []
    for file, count in enumerate([40, 0, 1, 25, 60]):
        content = b""
        for number in range(count):
            words = 0 if number % 9 == 4 else chance.randrange(400 if number % 7 == 3 else 40)
            text = " ".join(chance.choice(WORDS) for _ in range(words))
            records.append((file, len(content), text))
            content += json.dumps({"text": text}).encode() + b"\n"
        (folder / f"{file}.jsonl").write_bytes(content or b"\n")
    return Source(folder, records)


def documents_of(source: Source, tokenizer: str, position: str) -> list[Document]:
    def encode(text: str) -> list[int]:
        return list(text.encode()) if tokenizer == "bytes" else encoding(tokenizer).encode_ordinary(text)

    before, after = [[END[tokenizer]] if position == each else [] for each in ("Before", "After")]
    return [Document(file, at, text, before + encode(text) + after) for file, at, text in source.records]


def job_of(source: Source, output: Path, tokenizer: str = "bytes", /, **fields: Any) -> TokenizationJob:
    layout = {"formats": FORMATS, "sequence": {"length": 64}, "shards": {"sequences": 5}, **fields.pop("output", {})}
    return make_job(source.folder, output, {"tokenizer": {"name": tokenizer}}, output=layout, **fields)


def require_shards(output: Path, split: str, shards: Sequence[RowShard], dtype: np.dtype[Any]) -> None:
    """Every file of every shard, byte for byte."""
    assert len(list((output / "parts" / split).iterdir())) == len(shards)
    for index, shard in enumerate(shards):
        rows = np.array(shard.rows, dtype=dtype)
        for format in FORMATS:
            tokens = rows if format == "Npy" else rows.reshape(-1)
            lengths, places = [rows.shape[1]] * len(rows), places_of(shard)
            contents = files_of(format, tokens, lengths, number=index, places=places)
            for suffix, content in zip(SUFFIXES[format], contents, strict=True):
                path = output / format.lower() / split / f"{split}_{index:06d}{suffix}"
                assert path.read_bytes() == content, path
        parts = np.load(output / "parts" / split / f"{split}_{index:06d}.npy")
        assert parts.tolist() == [tuple(part) for part in shard.parts]
        assert parts.dtype.itemsize == 28


CUTS = [
    (length, splits)
    for length in (2, 64, 333, 100_000)
    for splits in SPLITS
    if (length, splits) != (100_000, "leading")
]
"""Two full shards of the longest rows are more than the corpus holds."""


@pytest.mark.sampled(61)  # test_every_layout has each pair of values
@pytest.mark.parametrize(("length", "splits"), CUTS)
@pytest.mark.parametrize("position", ["Before", "After", "None"])
@pytest.mark.parametrize("scope", ["Stream", "File"])
def test_rows_are_those_of_a_loop_over_tokens(
    source: Source, tmp_path: Path, splits: str, position: str, scope: str, length: int
) -> None:
    """However the source is cut into ranges."""
    pad = {} if position == "Before" else {"pad": {"id": 300}}
    shard_rows = 500 if length == 2 else 5
    make = partial(shards_of, length=length, by_file=scope == "File", pad=300 if pad else 256, shard_rows=shard_rows)
    expected = splits_of(documents_of(source, "bytes", position), make, **ARGUMENTS[splits])
    delimiter = {"delimiter": {"position": position}}
    layout = {
        "sequence": {"length": length, "scope": scope, **pad},
        "shards": {"sequences": shard_rows},
        "splits": SPLITS[splits],
    }
    for cut in (500, 2000, 10**6):
        output = tmp_path / str(cut)
        job = job_of(source, output, output=layout, tokenizer=delimiter, rangeBytes=cut)
        run_job(job, executor=inline())
        for split in (each["name"] for each in SPLITS[splits]):
            require_shards(output, split, expected[split], np.dtype("<u2"))
        assert difference(output, tmp_path / "500") is None
    index = read_index(tmp_path / "500")
    for entry in index["splits"]:
        shards = expected[entry["name"]]
        rows, parts = [sum(len(each[field]) for each in shards) for field in (0, 1)]
        tokens = sum(part.length for shard in shards for part in shard.parts)
        begun = sum(part.offset == 0 for shard in shards for part in shard.parts)
        assert parts >= rows
        assert entry["sequences"] == {"length": length, "rows": rows, "padding": rows * length - tokens}
        assert (entry["tokens"], entry["documents"], entry["shards"]) == (tokens, begun, len(shards))


@pytest.mark.parametrize(("tokenizer", "dtype"), [("gpt2", "<u2"), ("cl100k_base", "<u4")])
def test_rows_of_real_tokenizers_are_padded_with_their_delimiter(
    source: Source, tmp_path: Path, tokenizer: str, dtype: str
) -> None:
    make = partial(shards_of, length=50, by_file=True, pad=END[tokenizer], shard_rows=7)
    expected = splits_of(documents_of(source, tokenizer, "Before"), make, leading=2)
    layout = {
        "sequence": {"length": 50, "scope": "File"},
        "shards": {"tokens": 7 * 50 + 49},
        "splits": SPLITS["leading"],
    }
    run_job(job_of(source, tmp_path / "out", tokenizer, output=layout), executor=inline())
    for split in expected:
        require_shards(tmp_path / "out", split, expected[split], np.dtype(dtype))


def test_stops_change_nothing(source: Source, tmp_path: Path) -> None:
    """A run that stops after each of its first tasks ends with the same bytes."""
    layout = {"sequence": {"length": 64, "scope": "File"}, "splits": SPLITS["shares"]}
    whole = tmp_path / "whole"
    run_job(job_of(source, whole, output=layout, rangeBytes=1000), executor=inline())
    stopped = tmp_path / "stopped"
    tasks = run_with_stops(job_of(source, stopped, output=layout, rangeBytes=1000), step=3)
    assert tasks > 4
    assert difference(stopped, whole) is None


PACKED: dict[str, Any] = {"sequence": {"length": 64, "packing": "BestFit"}, "shards": {"tokens": 4000}}
LAYOUTS: dict[str, dict[str, Any]] = {
    "source order": {},
    "shuffled": {"shuffle": {"seed": 3}},
    "packed": PACKED,
    "packed and shuffled": {**PACKED, "shuffle": {"seed": 3}},
    "truncated": {**PACKED, "sequence": {**PACKED["sequence"], "longDocuments": "Truncate"}},
}


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("more", LAYOUTS.values(), ids=LAYOUTS)
def test_ray_and_another_engine_change_nothing(more: dict[str, Any], source: Source, tmp_path: Path) -> None:
    layout = {"sequence": {"length": 64, "scope": "File"}, "splits": SPLITS["shares"], **more}
    run_job(job_of(source, tmp_path / "here", "gpt2", output=layout, rangeBytes=2000), executor=inline())
    job = job_of(source, tmp_path / "ray", "gpt2", output=layout, rangeBytes=700)
    options = ("--executor", "ray", "--processes", "2", "--engine", "fastokens")
    with TemporaryDirectory(prefix="ray-") as folder:  # a short name: Ray's sockets lie there
        done = run_command(command(job, tmp_path, *options), RAY_TMPDIR=folder)
    assert done.returncode == 0, done.stderr
    assert difference(tmp_path / "ray", tmp_path / "here") is None


def test_one_format_has_its_parts_beside_it(source: Source, tmp_path: Path) -> None:
    done = run_command(command(job_of(source, tmp_path / "out", output={"formats": ["Npy"]}), tmp_path))
    [split] = read_index(tmp_path / "out")["splits"]
    assert f"{split['tokens']:,} tokens in {split['sequences']['rows']} rows, {split['shards']} shards" in done.stdout
    rows = np.load(tmp_path / "out/train/train_000000.npy")
    assert rows.shape == (5, 64)
    assert np.load(tmp_path / "out/parts/train/train_000000.npy")["row"].max() == 4
    index = read_index(tmp_path / "out")
    assert index["formatVersion"] == 2
    assert index["data"]["output"]["sequence"] == {"length": 64, "packing": "Concat", "scope": "Stream", "pad": 256}


def test_only_the_file_of_parts_is_written_again_where_it_is_lost(source: Source, tmp_path: Path) -> None:
    output = tmp_path / "out"
    run_job(job_of(source, output), executor=inline())
    before = {path: (path.read_bytes(), path.stat().st_ino) for path in output.rglob("train_000001.*")}
    assert len(before) == 7
    victim = output / "parts/train/train_000001.npy"
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    run_job(job_of(source, output, rerunToken="again"), executor=inline())
    for path, (content, inode) in before.items():
        assert path.read_bytes() == content
        assert (path.stat().st_ino == inode) == (path != victim), path


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown pad": (
        {"pad": {"token": "<|pading|>"}},
        "PadUnknown: output.sequence.pad.token: '<|pading|>' is not a special token of gpt2; it has '<|endoftext|>'",
    ),
    "pad of text": (
        {"pad": {"id": 7}},
        "PadUnsafe: output.sequence.pad.id: text can become token 7 of gpt2, so padding would look like text",
    ),
}


@pytest.mark.parametrize(("sequence", "words"), BAD.values(), ids=BAD)
def test_padding_that_cannot_be_is_refused(
    source: Source, tmp_path: Path, sequence: dict[str, Any], words: str
) -> None:
    job = job_of(source, tmp_path / "out", "gpt2", output={"sequence": {"length": 64, **sequence}})
    done = run_command(command(job, tmp_path))
    assert (done.returncode, (tmp_path / "out").exists()) == (2, False)
    assert words in done.stderr


@pytest.mark.parametrize(("pad", "reason"), [({"pad": {"token": "<pad>"}}, "PadUnsafe"), ({}, "PadRequired")])
def test_the_token_of_unknown_text_is_no_padding(
    source: Source, tmp_path: Path, pad: dict[str, Any], reason: str
) -> None:
    """Whatever its name: documents hold it."""
    vocabulary = {letter: number for number, letter in enumerate("abcdefghijklmnopqrstuvwxyz ,.")} | {"<pad>": 29}
    added = [ADDED_FLAGS | {"id": 29, "content": "<pad>"}, ADDED_FLAGS | {"id": 30, "content": "<|endoftext|>"}]
    path = write_letters(tmp_path, None, added_tokens=added, model={"unk_token": "<pad>", "vocab": vocabulary})
    tokenizer = {"name": None, "uri": str(path), "delimiter": {"position": "None"}}
    job = job_of(source, tmp_path / "out", tokenizer=tokenizer, output={"sequence": {"length": 64, **pad}})
    with pytest.raises(SpecError) as caught:
        run_job(job, executor=inline())
    assert caught.value.reason == reason, caught.value


def test_without_delimiter_and_padding_token_a_pad_is_required(source: Source, tmp_path: Path) -> None:
    job = job_of(source, tmp_path / "out", tokenizer={"delimiter": {"position": "None"}})
    with pytest.raises(SpecError, match="does not say which token fills a row") as caught:
        run_job(job, executor=inline())
    assert caught.value.reason == "PadRequired"
    assert "{id: N}" in caught.value.next_step


def test_a_pad_above_the_vocabulary_is_warned_of_and_widens_the_type(source: Source, tmp_path: Path) -> None:
    layout = {"sequence": {"length": 64, "pad": {"id": 70_000}}, "formats": ["Npy"]}
    events: list[Any] = []
    run_job(job_of(source, tmp_path / "out", output=layout), executor=inline(), on_progress=events.append)
    assert np.load(tmp_path / "out/train/train_000000.npy").dtype == np.dtype("<u4")
    assert any(
        isinstance(each, Warned) and "give the model's embedding room for 70,001" in str(each) for each in events
    )
    narrow = job_of(source, tmp_path / "narrow", output={**layout, "dtype": "UInt16"})
    with pytest.raises(SpecError, match=r"UInt16 holds ids up to 65,535"):
        run_job(narrow, executor=inline())


@pytest.mark.parametrize("scope", ["Stream", "File"])
def test_plan_shows_rows_and_how_much_of_them_is_text(source: Source, tmp_path: Path, scope: str) -> None:
    """The estimate is near what comes out, and a complete dataset's plan has its numbers."""
    job = job_of(source, tmp_path / "out", output={"sequence": {"length": 64, "scope": scope}})
    expected = preview_run(job).rows
    run_job(job, executor=inline())
    found = preview_run(job)
    texts = sum(len(text.encode()) for _, _, text in source.records)
    [split] = read_index(tmp_path / "out")["splits"]
    assert found.rows == RowEstimate(64, split["sequences"]["rows"], texts / (64 * split["sequences"]["rows"]))
    assert expected is not None
    assert abs(expected.count - found.rows.count) <= 2
    assert abs(expected.utilization - found.rows.utilization) < 0.01
    run, manifest, *_ = command(job, tmp_path)[1:]
    assert run == "run"
    shown = run_command([str(TOKJOB), "plan", manifest])
    words = f"rows       {found.rows.count} of 64 tokens, {found.rows.utilization:.1%} of them text, padded with 256\n"
    assert words in shown.stdout


@pytest.mark.parametrize("scope", ["Stream", "File"])
@pytest.mark.parametrize("splits", SPLITS)
def test_the_dataset_gives_rows_documents_and_places(source: Source, tmp_path: Path, scope: str, splits: str) -> None:
    """Tokens are the rows end to end; documents are whole and without padding; every token's document is known."""
    layout = {"sequence": {"length": 64, "scope": scope}, "splits": SPLITS[splits], "formats": ["Megatron"]}
    run_job(job_of(source, tmp_path / "out", output=layout), executor=inline())
    make = partial(shards_of, length=64, by_file=scope == "File", pad=256, shard_rows=5)
    documents = documents_of(source, "bytes", "Before")
    expected = splits_of(documents, make, **ARGUMENTS[splits])
    dataset = open_dataset(tmp_path / "out")
    assert (dataset.row_length, dataset.pad_id) == (64, 256)
    by_place = {(each.file, each.position): each for each in documents}
    read = {name: iter(dataset[name].read_documents(with_delimiter=True)) for name in dataset}
    for name in dataset:
        split, shards = dataset[name], expected[name]
        assert [shard.rows for shard in split.shards] == [len(shard.rows) for shard in shards]
        assert split[:].tolist() == [token for shard in shards for row in shard.rows for token in row]
        begun = [part for shard in shards for part in shard.parts if part.offset == 0]
        assert [each.tolist() for each in read[name]] == [by_place[part.file, part.position].tokens for part in begun]
        first = 0
        for shard in shards:
            for part in shard.parts[:: max(1, len(shard.parts) // 3)]:
                at = first + part.row * 64 + part.start
                place = dataset.locate(name, at + part.length - 1)
                document = by_place[part.file, part.position]
                assert (place.start, place.tokens) == (at - part.offset, len(document.tokens))
                assert (place.uri, place.position) == (str(source.folder / f"{part.file}.jsonl"), part.position)
            first += len(shard.rows) * 64


def test_show_passes_over_padding(source: Source, tmp_path: Path) -> None:
    layout = {"sequence": {"length": 64, "scope": "File"}}
    run_job(job_of(source, tmp_path / "out", output=layout), executor=inline())
    texts = [text for _, _, text in source.records]
    shown = show_documents(tmp_path / "out", "train", 0, len(texts))
    assert [each.text for each in shown] == texts
    assert [each.note for each in shown] == [""] * len(texts)
    padding = len(open_dataset(tmp_path / "out")["train"]) - 1
    done = run_command([str(TOKJOB), "show", str(tmp_path / "out"), "--split", "train", "--token", str(padding)])
    assert done.returncode == 2
    assert f"TokenIsPadding: token {padding:,} of split 'train' of {tmp_path / 'out'} is padding" in done.stderr


@pytest.fixture(scope="module")
def rows_dataset(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("rows") / "out"
    layout = {"sequence": {"length": 64, "scope": "File"}, "splits": SPLITS["leading"]}
    run_job(job_of(source, output, output=layout), executor=inline())
    return output


def test_rows_by_number(rows_dataset: Path, source: Source) -> None:
    make = partial(shards_of, length=64, by_file=True, pad=256, shard_rows=5)
    expected = splits_of(documents_of(source, "bytes", "Before"), make, leading=2)
    for name, shards in expected.items():
        rows = open_dataset(rows_dataset)[name].rows
        all_rows = [row for shard in shards for row in shard.rows]
        assert (len(rows), rows.length) == (len(all_rows), 64)
        assert [rows[number].tolist() for number in range(len(rows))] == all_rows
        assert rows[-1].tolist() == all_rows[-1]
        for wanted in (slice(None), slice(3, 8), slice(None, None, -2), slice(5, 5)):
            assert rows[wanted].tolist() == all_rows[wanted]
            assert rows[wanted].shape[1:] == (64,)
        found = [tuple(part)[:2] + tuple(part)[3:] for number in range(len(rows)) for part in rows.parts(number)]
        assert found == [part[:2] + part[3:] for shard in shards for part in shard.parts]
        with pytest.raises(IndexError, match=rf"row {len(rows)}: expected -{len(rows)} <= row < {len(rows)}"):
            rows[len(rows)]
        with pytest.raises(TypeError, match="expected a whole number or a slice, found 'a'"):
            rows["a"]  # type: ignore[call-overload]


def test_examples_hold_what_a_training_step_takes(rows_dataset: Path) -> None:
    rows = pickle.loads(pickle.dumps(open_dataset(rows_dataset)["train"].rows))
    examples = rows.examples()
    assert len(examples) == len(rows)
    for number in range(0, len(rows), 7):
        example = examples[number]
        assert {name: (array.dtype, array.shape) for name, array in example.items()} == {
            "tokens": (np.int32, (64,)),
            "segment_ids": (np.int32, (64,)),
            "positions": (np.int32, (64,)),
            "loss_mask": (np.bool_, (63,)),
        }
        assert np.array_equal(example["tokens"], rows[number])
        assert np.array_equal(example["tokens"] == 256, (example["positions"] == 0) & (rows_begin(rows, number)))
        assert np.array_equal(
            rows.mask(number).sum(axis=1), np.where(example["segment_ids"], example["positions"], 0) + 1
        )
        assert rows.cu_seqlens(number)[-1] == np.count_nonzero(example["segment_ids"])


def rows_begin(rows: Any, number: int) -> np.ndarray[Any, Any]:
    """Where documents begin in a row, and its padding: the delimiter stands there."""
    begins = rows.segment_ids(number) == 0
    for part in rows.parts(number):
        begins[part["start"]] = part["offset"] == 0
    return begins


def test_an_order_is_shared_out_and_goes_on_anywhere(rows_dataset: Path) -> None:
    rows = open_dataset(rows_dataset)["train"].rows
    whole = list(rows.order(seed=3, epoch=1))
    assert sorted(whole) == list(range(len(rows)))
    assert whole != list(rows.order(seed=3, epoch=2))
    assert len(rows) % 7, "all are shared out"
    for world in (4, 7):
        shares = [list(rows.order(seed=3, epoch=1, rank=rank, world=world)) for rank in range(world)]
        assert [number for step in zip(*shares, strict=True) for number in step] == whole[: len(rows) // world * world]
    order = rows.order(seed=3, epoch=1)
    assert list(order[30:]) == np.asarray(order)[30:].tolist() == whole[30:]
    assert [order[0], order[-1], len(order[5:9])] == [whole[0], whole[-1], 4]
    with pytest.raises(
        IndexError, match=rf"place {len(rows)} of an order: expected -{len(rows)} <= place < {len(rows)}"
    ):
        order[len(rows)]
    with pytest.raises(ValueError, match="rank: found 4, expected less than world, 4"):
        rows.order(seed=1, epoch=0, rank=4, world=4)


def test_a_dataset_without_rows_says_so(source: Source, tmp_path: Path) -> None:
    run_job(make_job(source.folder, tmp_path / "out", {"tokenizer": {"name": "bytes"}}), executor=inline())
    with pytest.raises(TypeError, match=r"split 'train' has no rows: .* make the dataset with output.sequence"):
        _ = open_dataset(tmp_path / "out")["train"].rows
