"""`tokjob clean` removes what a run wrote, and no file of others: neither one of a shard's name, nor one below
`_tokenization/`, nor what lies in an output inside of this one. What stays is named.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support.command_line import Bench, assert_told
from support.runs import files_below
from tokenization_worker.inspect.clean import clean_output
from tokenization_worker.output import layout
from tokenization_worker.output.ledger.receipts import ShardReceipt
from tokenization_worker.output.plan_file import read_naming
from tokenization_worker.output.record import load_record

SHARD = "train/train_000050.npy"
FIRST = "train/train_000000.npy"


@pytest.fixture
def stopped(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.stop()
    return bench


def npy(tokens: int, dtype: type) -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(tokens, dtype=dtype))
    return file.getvalue()


FOREIGN_SHARDS = {
    "text": b"x\n",
    "empty": b"",
    "another-dtype": npy(6000, np.uint32),
    "too-many-tokens": npy(12_001, np.uint16),
    "cut": npy(12_000, np.uint16)[:-2],
    "of-a-shards-size": b"x" * (128 + 24_000),
    "more-behind": npy(11_999, np.uint16) + b"xx",
}
BELOW_OURS = [
    "_tokenization/xx/u",
    "_tokenization/notes",
    "_tokenization/plan.bak",
    "_tokenization/ledger/0/ranges/notes.json",
    "_tokenization/ledger/0/segments/00000000.bak",
    "_tokenization/documents/train/notes",
    "_tokenization/alive/index.json",
]


@pytest.mark.parametrize("content", FOREIGN_SHARDS)
def test_a_foreign_file_of_a_shards_name_stays_and_is_named(content: str, stopped: Bench) -> None:
    """Also beside a shard whose receipt is missing."""
    (stopped.output / "_tokenization/ledger/0/shards/train/00000000.json").unlink()
    stopped.write(f"out/{SHARD}", FOREIGN_SHARDS[content])
    for option in (["--dry-run"], []):
        told = stopped.tokjob("clean", "out", *option)
        assert told.code == 0
        assert f"not removed: {SHARD}: " in told.out
        assert f"\n{SHARD}\n" not in told.out
    assert files_below(stopped.output) == {SHARD}
    assert (stopped.output / SHARD).read_bytes() == FOREIGN_SHARDS[content]


FORMATS = ["Npy", "Raw", "LlmC", "Megatron"]
LAYOUTS = {"documents": "", "rows": "sequence: {length: 100}, "}


@pytest.mark.parametrize("sequence", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("format", FORMATS)
def test_files_of_a_shard_without_a_receipt_are_removed(format: str, sequence: str, tmp_path: Path) -> None:
    """A run that is killed between a shard and its receipt leaves them."""
    bench = stopped_with(tmp_path, format, sequence)
    (bench.output / "_tokenization/ledger/0/shards/train/00000000.json").unlink()
    assert clean_output(str(bench.output), dry_run=False).stays == ()
    assert files_below(bench.output) == set()


@pytest.mark.parametrize("sequence", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_copy_of_a_shard_stays_where_every_shard_has_a_receipt(format: str, sequence: str, tmp_path: Path) -> None:
    """It has the size and the header of a shard; nothing says that this run was writing one."""
    bench = stopped_with(tmp_path, format, sequence)
    copies = {}
    for path in bench.output.glob("train/train_000000.*"):
        copies[path.with_stem("train_000050")] = path.read_bytes()
        path.with_stem("train_000050").write_bytes(path.read_bytes())
    assert len(copies) == (2 if format == "Megatron" else 1)
    stays = clean_output(str(bench.output), dry_run=False).stays
    assert {path for path, _ in stays} == {str(path.relative_to(bench.output)) for path in copies}
    assert {reason for _, reason in stays} == {"no receipt names it, and every shard that a run began has one"}
    assert {path: path.read_bytes() for path in copies} == copies


def test_a_headerless_file_of_another_size_than_the_unfinished_shard_stays(tmp_path: Path) -> None:
    bench = stopped_with(tmp_path, "Raw", "")
    (bench.output / "_tokenization/ledger/0/shards/train/00000000.json").unlink()
    size = (bench.output / "train/train_000000.bin").stat().st_size
    bench.write("out/train/train_000050.bin", bytes(size - 2))
    clean_output(str(bench.output), dry_run=False)
    assert files_below(bench.output) == {"train/train_000050.bin"}


def stopped_with(folder: Path, format: str, sequence: str) -> Bench:
    """An unfinished run in this format, with at least one shard."""
    bench = Bench(folder)
    bench.stop(("shards: {", f"formats: [{format}], {sequence}shards: {{"))
    assert (bench.output / "_tokenization/ledger/0/shards/train/00000000.json").exists()
    return bench


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def test_a_shard_that_a_receipt_names_is_removed_also_where_it_is_damaged(stopped: Bench) -> None:
    cut(stopped.output / FIRST)
    assert clean_output(str(stopped.output), dry_run=False).stays == ()
    assert files_below(stopped.output) == set()


def test_receipts_of_earlier_epochs_count(stopped: Bench) -> None:
    ledger = stopped.output / "_tokenization/ledger"
    cut(stopped.output / FIRST)
    (ledger / "0").rename(ledger / "7")
    assert clean_output(str(stopped.output), dry_run=False).stays == ()
    assert files_below(stopped.output) == set()


def test_a_damaged_receipt_says_nothing(stopped: Bench) -> None:
    receipt = stopped.output / "_tokenization/ledger/0/shards/train/00000000.json"
    assert ShardReceipt.from_dict(load_record(receipt.read_bytes())).path == FIRST
    receipt.write_bytes(receipt.read_bytes().replace(b"train_000000", b"train_000009"))
    cut(stopped.output / FIRST)
    stopped.write("out/train/train_000009.npy", b"theirs")
    clean_output(str(stopped.output), dry_run=False)
    assert files_below(stopped.output) == {FIRST, "train/train_000009.npy"}


@pytest.mark.parametrize("path", BELOW_OURS)
def test_a_foreign_file_below_ours_stays_and_is_named(path: str, stopped: Bench) -> None:
    stopped.write(f"out/{path}", b"theirs")
    for option in (["--dry-run"], []):
        told = stopped.tokjob("clean", "out", *option)
        assert told.code == 0
        assert f"not removed: {path}: " in told.out
    assert files_below(stopped.output) == {path}


@pytest.mark.parametrize("path", ["ledger/0/segments/00000000.bak", "ledger/0/segments/mine/00000000", "alive/notes"])
def test_a_run_that_ends_leaves_a_foreign_file_in_its_scratch(path: str, stopped: Bench) -> None:
    stopped.write(f"out/_tokenization/{path}", b"theirs")
    stopped.run(more="  maxQuarantined: 1\n")
    assert (stopped.output / "_tokenization" / path).read_bytes() == b"theirs"


def test_every_file_that_a_run_leaves_is_one_that_clean_knows(stopped: Bench) -> None:
    for path in (
        layout.WRITE_CHECK,
        f"{layout.ALIVE}host.example-17-0a1b2c3d",
        layout.epoch_path(3),
        layout.segment_path(1, 5),
        layout.quarantine_path(0, 3, "0" * 64),
        layout.verdict_path(7),
        layout.crash_verdict_path(7, 12345678901234567),
        layout.rerun_path("sha256:" + "ab" * 32),
        layout.FILES_TABLE,
        layout.QUARANTINE_TABLE,
    ):
        stopped.write(f"out/{path}", b"ours")
    cleaned = clean_output(str(stopped.output), dry_run=False)
    assert cleaned.stays == ()
    assert files_below(stopped.output) == set()


def unfinish(output: Path) -> None:
    (output / layout.INDEX).unlink()


@pytest.mark.parametrize("is_finished", [True, False], ids=["dataset", "unfinished"])
def test_an_output_inside_this_one_stays_whole(is_finished: bool, tmp_path: Path) -> None:
    """Its shards have names that the outer output gives to shards, the content of shards, and the outer's receipts."""
    bench = Bench(tmp_path)
    inner, outer = bench.output / "train", bench.folder / "outer"
    bench.run(("uri: out", f"uri: {inner}, path: '{{index:06d}}'"))
    bench.run(("uri: out", f"uri: {outer}, path: '{{split}}/{{index:06d}}'"))
    (outer / layout.INDEX).unlink()
    (outer / layout.OWN).rename(bench.output / layout.OWN)
    if not is_finished:
        (inner / layout.INDEX).unlink()
    before = {f"train/{path}": (inner / path).read_bytes() for path in files_below(inner)}
    assert "train/000000.npy" in before

    cleaned = clean_output(str(bench.output), dry_run=False)
    assert {path: (bench.output / path).read_bytes() for path in files_below(bench.output)} == before
    assert "train/000000.npy" in {path for path, _ in cleaned.stays}


def test_a_plan_says_how_shards_are_named_and_what_they_hold(stopped: Bench) -> None:
    naming = read_naming((stopped.output / layout.PLAN).read_bytes())
    assert naming is not None
    assert (naming.path, naming.splits) == ("{split}/{split}_{index:06d}", ("train",))
    assert (naming.dtype, naming.shard_tokens) == ("UInt16", 12_000)


def foreign_index(bench: Bench) -> None:
    bench.write("web/index.json", b'{"pages": []}')


REFUSED: dict[str, tuple[list[str], str, Callable[[Bench], object]]] = {
    "status-of-a-foreign-index": (["status", "web"], "web/index.json was not written by this program", foreign_index),
    "clean-of-a-foreign-index": (["clean", "web"], "web/index.json was not written by this program", foreign_index),
    "verify-of-a-foreign-index": (["verify", "web"], "web/index.json was not written by this program", foreign_index),
    "show-of-a-foreign-index": (
        ["show", "web", "--token", "0"],
        "web/index.json was not written by this program",
        foreign_index,
    ),
    "clean-of-nothing": (["clean", "nowhere"], "nowhere does not exist", lambda bench: None),
    "clean-of-data": (["clean", "src"], "src has files, but no run of tokjob", lambda bench: None),
    "status-of-data": (["status", "src"], "src has files, but no run of tokjob", lambda bench: None),
    "clean-of-an-empty-folder": (["clean", "e"], "e is empty", lambda bench: (bench.folder / "e").mkdir()),
    "clean-of-a-file": (["clean", "src/a.jsonl"], "src/a.jsonl is a file", lambda bench: None),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_place_that_is_no_output_is_named_for_what_it_is(case: str, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    arguments, words, prepare = REFUSED[case]
    prepare(bench)
    before = bench.files()
    told = bench.tokjob(*arguments)
    assert_told(told, 2, "NotAnOutput: ", words, "check the path")
    assert "output.uri" in told.err
    assert bench.files() == before


def test_a_damaged_index_may_be_a_dataset_and_is_not_cleaned(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run()
    index = bench.output / layout.INDEX
    index.write_bytes(index.read_bytes()[:100])
    before = bench.files()
    told = bench.tokjob("clean", "out")
    assert_told(told, 4, "RecordCorrupt", "index.json is corrupt", "may hold a complete dataset", "rm -r")
    assert bench.files() == before
