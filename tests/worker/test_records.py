"""A record of an unfinished run that is damaged: every command names it and the next step, and that step helps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import Bench, byte_shards, shards_of
from runs import files_below

from tokenization_worker import layout
from tokenization_worker.cli.main import main

PLAN = layout.PLAN
RANGE = layout.range_receipt_path(0, 0)
SHARD = layout.shard_receipt_path(0, "train", 0)
VERDICT = layout.verdict_path(0)
EPOCH = layout.epoch_path(0)

DELETE = "delete this file and start again"
CLEAN = "remove the unfinished run (tokjob clean "

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
    "range-garbage": (RANGE, lambda data: b"garbage", DELETE),
    "range-other-fields": (RANGE, lambda data: b'{"a": 1}', DELETE),
    "range-no-object": (RANGE, lambda data: b"[]", DELETE),
    "range-a-count-changed": (RANGE, lambda data: re.sub(rb'"docs":\[(\d)', rb'"docs":[1\1', data), DELETE),
    "range-a-text-for-a-number": (RANGE, lambda data: re.sub(rb'"samples":(\d+)', rb'"samples":"\1"', data), DELETE),
    "range-empty": (RANGE, lambda data: b"", DELETE),
    "shard-half": (SHARD, half, DELETE),
    "shard-digit-changed": (SHARD, lambda data: re.sub(rb'"documents":(\d+)', rb'"documents":1\1', data), DELETE),
    "shard-other-types": (SHARD, lambda data: data.replace(b'"pieces":[', b'"pieces":[1,'), DELETE),
    "verdict-garbage": (VERDICT, lambda data: b"garbage", DELETE),
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


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_record_is_named_and_the_next_step_helps(
    name: str, stopped: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    file, next_step = damage(stopped, name), DAMAGE[name][2]
    for command in (["run", "job.yaml"], ["plan", "job.yaml"], ["status", "out"]):
        if command[0] != "plan" or file.name == "plan":  # which reads nothing else
            assert main(command) == 4
            told = capsys.readouterr().err
            assert f"RecordCorrupt: {file} is damaged: " in told
            assert f"next: {next_step}" in told

    if next_step == DELETE:
        file.unlink()
    else:
        assert main(["clean", "out"]) == 0
        for left in shards_of(stopped.output) if "they stay" in capsys.readouterr().out else ():
            (stopped.output / left).unlink()
    stopped.run(more=MORE)
    assert shards_of(stopped.output) == byte_shards(stopped.documents)


@pytest.mark.parametrize("name", DAMAGE)
def test_clean_works_whatever_record_is_damaged(name: str, stopped: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    damage(stopped, name)
    shards = set(shards_of(stopped.output))
    assert main(["clean", "out", "--dry-run"]) == 0
    assert main(["clean", "out"]) == 0
    is_told = "which files are shards: they stay" in capsys.readouterr().out
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
        assert f"RecordCorrupt: {index} is damaged: " in told
        assert "next: delete this file and run the job again: it is written again from the ledger" in told
    assert main(["clean", "out"]) == 4  # the dataset may be complete

    index.unlink()
    bench.run()
    assert index.read_bytes().split(b'"run":')[0] == before.split(b'"run":')[0]
    assert main(["verify", "out", "--full", "--processes", "1"]) == 0
