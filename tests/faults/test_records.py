"""A record of an unfinished run that is corrupt: every command names it and the next step, and that step helps."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import orjson
import pytest

from support.command_line import Bench, byte_shards, dataset_of, shards_of
from support.corpus import zstd
from support.runs import files_below, leftovers, read_index, write_index
from tokenization_worker.cli.main import main
from tokenization_worker.dataset.dataset import open_dataset
from tokenization_worker.errors import DataError
from tokenization_worker.events import Event, Warned
from tokenization_worker.inspect.status import read_status
from tokenization_worker.output import layout
from tokenization_worker.output.index import checksum_of
from tokenization_worker.output.record import dump_json, dump_record, load_record
from tokenization_worker.verification.verify import dataset_digest, verify

pytestmark = pytest.mark.slow

PLAN = layout.PLAN
RANGE = layout.range_receipt_path(0, 0)
SHARD = layout.shard_receipt_path(0, "train", 0)
VERDICT = layout.verdict_path(0)
POISON = layout.crash_verdict_path(0, 0)
EPOCH = layout.epoch_path(0)

DELETE = "delete this file and start again"
CLEAN = "remove the unfinished run (tokjob clean "
AGAIN = ""
"""A run continues by itself."""

MORE = "  maxQuarantined: 1\n"


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """An unfinished run: all ranges and shards are done, and one document too many is unusable."""
    monkeypatch.chdir(tmp_path)
    bench = Bench(tmp_path)
    bench.stop()
    return bench


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


DAMAGE = {
    "plan-empty": (PLAN, lambda data: b"", CLEAN),
    "plan-magic-alone": (PLAN, lambda data: data[:8], CLEAN),
    "plan-header-cut": (PLAN, lambda data: data[:40], CLEAN),
    "plan-cut": (PLAN, lambda data: data[:-8], CLEAN),
    "plan-half": (PLAN, half, CLEAN),
    "plan-files-garbled": (PLAN, lambda data: data.replace(b"\x28\xb5\x2f\xfd", b"\0\0\0\0"), CLEAN),
    "range-garbage": (RANGE, lambda data: b"garbage", AGAIN),
    "range-other-fields": (RANGE, lambda data: b'{"a": 1}', AGAIN),
    "range-no-object": (RANGE, lambda data: b"[]", AGAIN),
    "range-a-count-changed": (RANGE, lambda data: re.sub(rb'"docs":\[(\d)', rb'"docs":[1\1', data), AGAIN),
    "range-a-text-for-a-number": (RANGE, lambda data: re.sub(rb'"samples":(\d+)', rb'"samples":"\1"', data), AGAIN),
    "range-empty": (RANGE, lambda data: b"", AGAIN),
    "shard-half": (SHARD, half, AGAIN),
    "shard-digit-changed": (SHARD, lambda data: re.sub(rb'"documents":(\d+)', rb'"documents":1\1', data), AGAIN),
    "shard-other-types": (SHARD, lambda data: data.replace(b'"pieces":[', b'"pieces":[1,'), AGAIN),
    "verdict-garbage": (VERDICT, lambda data: b"garbage", AGAIN),
    "poison-garbage": (POISON, lambda data: b"garbage", DELETE),
    "epoch-garbage": (EPOCH, lambda data: b"garbage", CLEAN),
    "epoch-letter-changed": (EPOCH, lambda data: data.replace(b'"engine":"bytes"', b'"engine":"bytez"'), CLEAN),
    "epoch-empty": (EPOCH, lambda data: b"", CLEAN),
    "epoch-other-fields": (EPOCH, lambda data: b"{}", CLEAN),
}


def damage(bench: Bench, name: str) -> Path:
    path, change, _ = DAMAGE[name]
    file = bench.output / path
    data = file.read_bytes() if file.exists() else b""
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(change(data))
    return file


@pytest.mark.parametrize("name", [name for name, (_, _, next_step) in DAMAGE.items() if next_step == AGAIN])
def test_damaged_receipt_or_verdict_on_a_file_is_made_again_with_a_warning(name: str, stopped: Bench) -> None:
    file = damage(stopped, name)
    left = file.read_bytes()
    assert read_status(str(stopped.output)).phase == "Failed"  # which deletes nothing
    assert file.read_bytes() == left
    events: list[Event] = []
    stopped.run(more=MORE, watch=events.append)
    [told] = [event.message for event in events if isinstance(event, Warned)]
    made = {
        RANGE: "tokenizes the range again",
        SHARD: "writes the shard again",
        VERDICT: "reads the source file again",
    }
    path = DAMAGE[name][0]
    assert f"{file} is corrupt: " in told
    assert f"this run deletes it, and {made[path]}" in told
    assert file.exists() == (path != VERDICT)  # no file is damaged here
    if file.exists():
        load_record(file.read_bytes())
    assert shards_of(stopped.output) == byte_shards(stopped.documents)
    assert verify(str(stopped.output), mode="full", processes=1).is_clean


def in_slice(**fields: object) -> Callable[[dict[str, Any]], object]:
    return lambda record: record["slices"][0].update(fields)


def with_fields(**fields: object) -> Callable[[dict[str, Any]], object]:
    return lambda record: record.update(fields)


STRANGE: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "list-number": (RANGE, with_fields(quarantine_digest=-1)),
    "list-elsewhere": (RANGE, with_fields(quarantine_digest="../../../../etc")),
    "count-null": (RANGE, with_fields(text_bytes=None)),
    "count-fraction": (RANGE, with_fields(text_bytes=1.5)),
    "count-negative": (RANGE, with_fields(source_bytes=-1)),
    "no-slices": (RANGE, with_fields(slices=[])),
    "range-of-another": (RANGE, with_fields(range_id=1)),
    "range-of-another-epoch": (RANGE, with_fields(epoch=7)),
    "slice-file": (RANGE, in_slice(file=3)),
    "slice-outcome": (RANGE, in_slice(outcome="Odd")),
    "slice-no-streams": (RANGE, in_slice(tokens=[], docs=[])),
    "slice-more-streams": (RANGE, in_slice(tokens=[1, 1], docs=[1, 1])),
    "slice-negative": (RANGE, in_slice(tokens=[-1])),
    "slice-reasons": (RANGE, in_slice(quarantined={"NullText": "many"})),
    "slice-poison": (RANGE, in_slice(poison=[{"position": None, "detail": "", "sha256": "", "bytes": 1}])),
    "slice-bytes": (RANGE, in_slice(read_bytes=-1)),
    "shard-path-null": (SHARD, with_fields(path=None)),
    "shard-path-foreign": (SHARD, with_fields(path="train/thesis.npy")),
    "shard-index-null": (SHARD, with_fields(index=None)),
    "shard-index-other": (SHARD, with_fields(index=1)),
    "shard-number": (SHARD, with_fields(shard=-1)),
    "shard-split": (SHARD, with_fields(split="test")),
    "shard-tokens": (SHARD, with_fields(tokens=-1)),
    "shard-pieces": (SHARD, with_fields(pieces=[{"range_id": 0, "stream": 0, "start": 5, "end": 1}])),
    "epoch-engine": (EPOCH, with_fields(engine=[])),
    "epoch-versions": (EPOCH, with_fields(versions=1)),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", STRANGE)
def test_a_record_with_a_right_checksum_of_which_nothing_can_be_made_is_refused_and_stays(
    name: str, stopped: Bench
) -> None:
    path, change = STRANGE[name]
    file = stopped.output / path
    record = load_record(file.read_bytes())
    change(record)
    file.write_bytes(dump_record(record))
    left = file.read_bytes()
    with pytest.raises(DataError) as raised:
        stopped.run(more=MORE)
    assert (raised.value.reason, str(file) in raised.value.message) == ("RecordCorrupt", True)
    assert file.read_bytes() == left
    if path == EPOCH:
        assert CLEAN in raised.value.next_step
        return
    assert "has the right checksum" in raised.value.message
    assert "delete this file and start the same command again" in raised.value.next_step
    file.unlink()
    stopped.run(more=MORE)
    assert verify(str(stopped.output), mode="full", processes=1).is_clean


def test_run_tells_of_a_damaged_receipt(stopped: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    file = damage(stopped, "range-garbage")
    assert main(["status", "out"]) == 0
    assert main(["run", "job.yaml", "--maxQuarantined", "1", "--processes", "1"]) == 0
    told = capsys.readouterr().out
    assert f"warning    {file} is corrupt: " in told
    assert "; this run deletes it, and tokenizes the range again" in told


@pytest.mark.parametrize("path", [RANGE, SHARD])
def test_damaged_receipt_of_a_complete_dataset_is_made_again_by_the_next_run(path: str, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run()
    before = dataset_of(bench.output)
    file = bench.output / path
    file.write_bytes(flip(file.read_bytes()))
    events: list[Event] = []
    bench.run(more='  rerunToken: "2"\n', watch=events.append)
    assert [f"{file} is corrupt: " in event.message for event in events if isinstance(event, Warned)] == [True]
    load_record(file.read_bytes())
    assert dataset_of(bench.output) == before
    assert [path for path in leftovers(bench.output) if "/reruns/" not in path] == []


def test_ledger_that_was_moved_in_parts_is_not_made_whole_for_a_damaged_receipt(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run(more="  rangeBytes: 4Ki\n")
    receipts = sorted((bench.output / "_tokenization/ledger/0/ranges").iterdir())
    for receipt in receipts[1:]:
        receipt.unlink()
    receipts[0].write_bytes(flip(receipts[0].read_bytes()))
    assert len(receipts) > 2
    events: list[Event] = []
    bench.run(more='  rerunToken: "2"\n', watch=events.append)
    assert [f"{receipts[0]} is corrupt: " in event.message for event in events if isinstance(event, Warned)] == [True]
    assert not any(receipt.exists() for receipt in receipts)


def flip(data: bytes) -> bytes:
    """One bit of a digit in the middle."""
    at = next(at for at in range(len(data) // 2, len(data)) if chr(data[at]) in "024688")
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("name", [name for name, (_, _, next_step) in DAMAGE.items() if next_step != AGAIN])
def test_damaged_record_is_named_and_the_next_step_helps(
    name: str, stopped: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    file, next_step = damage(stopped, name), DAMAGE[name][2]
    for command in (["run", "job.yaml"], ["plan", "job.yaml"], ["status", "out"]):
        if command[0] != "plan" or file.name == "plan":  # which reads nothing else
            assert main(command) == 4
            told = capsys.readouterr().err
            assert f"RecordCorrupt: {file} is corrupt: " in told
            assert f"next: {next_step}" in told

    if next_step == DELETE:
        file.unlink()
    else:
        assert main(["clean", "out"]) == 0
        for left in shards_of(stopped.output) if "it leaves them" in capsys.readouterr().out else ():
            (stopped.output / left).unlink()
    stopped.run(more=MORE)
    assert shards_of(stopped.output) == byte_shards(stopped.documents)


@pytest.mark.parametrize("name", DAMAGE)
def test_clean_works_whatever_record_is_damaged(name: str, stopped: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    damage(stopped, name)
    shards = set(shards_of(stopped.output))
    assert main(["clean", "out", "--dry-run"]) == 0
    assert main(["clean", "out"]) == 0
    is_told = "which files are shards: it leaves them" in capsys.readouterr().out
    assert is_told == (name in ("plan-empty", "plan-magic-alone", "plan-header-cut", "plan-half"))
    assert files_below(stopped.output) == (shards if is_told else set())


def test_clean_leaves_no_empty_folders_of_its_own(stopped: Bench) -> None:
    (stopped.output / "theirs").mkdir()
    stopped.write("out/train/notes.npy", "theirs")
    assert main(["clean", "out"]) == 0
    assert {path.name for path in stopped.output.rglob("*")} == {"theirs", "train", "notes.npy"}


# --- the index


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b'{"formatVersion": 1}'])
def test_damaged_index_is_named_and_written_again_from_the_ledger(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    bench = Bench(tmp_path)
    bench.run()
    index = bench.output / "index.json"
    before = index.read_bytes()
    index.write_bytes(content)
    for command in (
        ["run", "job.yaml"],
        ["plan", "job.yaml"],
        *([name, "out"] for name in ("status", "verify", "show")),
    ):
        assert main(command) == 4
        told = capsys.readouterr().err
        assert f"RecordCorrupt: {index} is corrupt: " in told
        assert "next: restore it from a copy, or delete this file and start the same `tokjob run` or" in told
    assert main(["clean", "out"]) == 4  # the dataset may be complete

    index.unlink()
    bench.run()
    assert index.read_bytes().split(b'"run":')[0] == before.split(b'"run":')[0]
    assert main(["verify", "out", "--full", "--processes", "1"]) == 0


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.chdir(tmp_path)
    bench = Bench(tmp_path)
    bench.run()
    return bench


INDEX_FLIPS = {
    "a count": lambda index: index["splits"][0].update(documents=index["splits"][0]["documents"] ^ 1),
    "the vocabulary": lambda index: index["tokenizer"].update(vocabularySize=index["tokenizer"]["vocabularySize"] ^ 1),
    "the delimiter": lambda index: index["tokenizer"].update(delimiterId=index["tokenizer"]["delimiterId"] ^ 1),
    "a name": lambda index: index["tokenizer"].update(name="bytez"),
    "how it was run": lambda index: index["run"].update(textBytes=index["run"]["textBytes"] ^ 1),
    "the digest of the files table": lambda index: index["run"].update(filesDigest="0" * 64),
    "the checksum": lambda index: index["run"].update(checksum="00000000"),
}


@pytest.mark.parametrize("change", INDEX_FLIPS.values(), ids=INDEX_FLIPS)
def test_index_whose_checksum_is_wrong_is_refused_by_every_reader(
    change: Callable[[dict[str, Any]], None], finished: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    index = read_index(finished.output)
    change(index)
    (finished.output / "index.json").write_bytes(orjson.dumps(index))
    with pytest.raises(DataError, match=r"RecordCorrupt: .*index.json is corrupt: its checksum is"):
        open_dataset(finished.output)
    modes = [["verify", "out", "--mode", mode] for mode in ("checksums", "sample", "full")]
    commands = [["run", "job.yaml"], ["run", "job.yaml", "--rerunToken", "2"], ["verify", "out", "--digest"], *modes]
    for command in commands:
        assert main(command) == 4
        told = capsys.readouterr()
        assert "RecordCorrupt" in told.err
        assert "index.json is corrupt: its checksum is" in told.err
        assert "restore it from a copy, or delete this file and start the same" in told.err
        assert told.out == ""


def test_index_has_the_checksum_that_the_layout_says(finished: Bench) -> None:
    """Written down as docs/layout.md has it: for programs that are not ours."""
    index = json.loads((finished.output / "index.json").read_bytes())
    checksum = index["run"].pop("checksum")
    data = json.dumps(index, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    assert checksum == f"{google_crc32c.value(data):08x}"
    assert checksum_of(index) == checksum


def test_index_without_checksum_is_read_as_before(finished: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """Datasets that were written before there was one."""
    make_older(finished.output)
    dataset = open_dataset(finished.output)
    assert dataset.locate("train", 5).start == 0
    assert main(["verify", "out", "--full", "--processes", "1"]) == 0
    assert main(["run", "job.yaml"]) == 0
    assert main(["run", "job.yaml", "--rerunToken", "2"]) == 0


def make_older(output: Path) -> None:
    """Take away what older datasets do not have: the index's checksum and those of the tables' frames."""
    index = read_index(output)
    del index["run"]["checksum"]
    (output / "index.json").write_bytes(dump_json(index))
    for table in (layout.SHARDS_TABLE, layout.FILES_TABLE, layout.QUARANTINE_TABLE):
        (output / table).write_bytes(zstd.compress(zstd.decompress((output / table).read_bytes())))


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index["tokenizer"].update(vocabularySize=1),
        lambda index: index["data"]["output"]["splits"][0].update(share="1/2"),
        lambda index: index["splits"][0].update(documents=7),
        lambda index: index.update(dtype="UInt32"),
        lambda index: index["conservation"]["quarantined"].update(InvalidJson=2),
    ],
    ids=["vocabulary", "share", "documents", "dtype", "quarantined"],
)
@pytest.mark.parametrize("has_unusable", [False, True])
def test_older_index_is_checked_by_the_dataset_s_digest(
    has_unusable: bool, change: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    bench = Bench(tmp_path)
    if has_unusable:
        bench.write("src/b.jsonl", b"not JSON\n")
    bench.run(more=MORE)
    make_older(bench.output)
    open_dataset(bench.output)
    index = read_index(bench.output)
    change(index)
    (bench.output / "index.json").write_bytes(dump_json(index))
    with pytest.raises(DataError, match=r"TableCorrupt: .*do not match the digest in index.json"):
        open_dataset(bench.output)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda index: index.pop("splits"), "no field 'splits'"),
        (lambda index: index["splits"][0].pop("digest"), "no field 'digest'"),
        (lambda index: index["splits"].clear(), "it has 0 splits, 1 in its data"),
        (lambda index: index.update(splits={}), "splits is of type dict, expected list"),
        (lambda index: index.update(splits=[7]), "not subscriptable"),
        (lambda index: index.update(tokenizer=[]), "list indices must be"),
        (lambda index: index["tokenizer"].update(vocabularySize="7"), "tokenizer.vocabularySize is of type str"),
        (lambda index: index["tokenizer"].update(delimiterId=True), "tokenizer.delimiterId is of type bool"),
        (lambda index: index.update(dtype="UInt17"), "dtype is 'UInt17', expected UInt16 or UInt32"),
        (lambda index: index.update(tokens=None), "tokens is of type NoneType, expected int"),
        (lambda index: index["conservation"]["files"].pop("Read"), "no field 'Read'"),
        (lambda index: index["conservation"]["quarantined"].update(x="1"), "quarantined.x is of type str"),
        (lambda index: index["run"].pop("runKey"), "no field 'runKey'"),
        (lambda index: index["data"]["output"]["splits"][0].pop("share"), "no field 'share'"),
    ],
)
@pytest.mark.parametrize("is_older", [True, False])
def test_index_with_other_fields_is_named(
    change: Callable[[dict[str, Any]], None], words: str, is_older: bool, finished: Bench
) -> None:
    index = read_index(finished.output)
    change(index)
    if is_older:
        del index["run"]["checksum"]
        (finished.output / "index.json").write_bytes(dump_json(index))
    else:
        write_index(finished.output, index)
    for read in (open_dataset, verify, dataset_digest):
        with pytest.raises(DataError, match=f"RecordCorrupt: .*index.json is corrupt: .*{re.escape(words)}") as caught:
            read(str(finished.output))
        assert caught.value.next_step
