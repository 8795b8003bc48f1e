"""What `status` says of a run that failed, and of a dataset that is no longer whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.command_line import Bench, assert_told
from support.runs import leftovers
from tokenization_worker.errors import DataError, TokenizationError
from tokenization_worker.inspect.status import OutputStatus, read_status
from tokenization_worker.output import layout
from tokenization_worker.storage.open import open_store
from tokenization_worker.verification.verify import verify


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


RAISED = "  maxQuarantined: 3\n"


def status(bench: Bench) -> OutputStatus:
    return read_status(str(bench.output))


def test_a_run_over_its_limit_is_failed_until_a_start_gets_further(bench: Bench) -> None:
    bench.stop()
    state = status(bench)
    assert (state.phase, state.reason) == ("Failed", "QuarantineExceeded")
    assert "1 of 121 documents" in state.message
    assert "maxQuarantined" in state.next_step
    digests = {path.name: path.read_bytes() for path in (bench.output / "train").iterdir()}

    bench.run(more=RAISED)
    assert status(bench).phase == "Complete"
    assert leftovers(bench.output) == []
    assert {path.name: path.read_bytes() for path in (bench.output / "train").iterdir()} == digests


def test_a_damaged_file_is_told_as_the_run_told_it(bench: Bench) -> None:
    bench.write("src/d.jsonl.gz", b"\x1f\x8b\x08\x00 no gzip after all")
    with pytest.raises(DataError) as raised:
        bench.run()
    state = status(bench)
    assert state.phase == "Failed"
    assert (state.reason, state.message, state.next_step) == (
        raised.value.reason,
        raised.value.message,
        raised.value.next_step,
    )
    told = bench.tokjob("status", "out")
    assert_told(told, 0)
    assert f"{state.reason}: {state.message}" in told.out
    assert f"next: {state.next_step}" in told.out


def test_a_changed_source_is_told_too(bench: Bench) -> None:
    bench.stop()
    (bench.source / "a.jsonl").unlink()
    with pytest.raises(TokenizationError):
        bench.run()
    assert (status(bench).phase, status(bench).reason) == ("Failed", "SourceChanged")


def test_another_job_that_is_refused_is_no_failure_of_this_one(bench: Bench) -> None:
    bench.stop()
    with pytest.raises(TokenizationError, match="OutputConflict"):
        bench.run(("tokens: 12000", "tokens: 13000"))
    assert status(bench).reason == "QuarantineExceeded"


def test_a_start_that_was_killed_after_a_failure_is_interrupted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.stop()

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    monkeypatch.setattr("tokenization_worker.run.run_plan.read_tokenize_ledger", die)
    with pytest.raises(Killed):
        bench.run()
    open_store(str(bench.output)).close_scratch()  # as the kernel does
    assert status(bench).phase == "Interrupted"


@pytest.mark.parametrize("content", [b"", b"{}", b'{"reason": "Old", "checksum": "00000000"}'], ids=["", "{}", "flip"])
def test_a_record_that_is_damaged_is_in_nobodys_way(content: bytes, bench: Bench) -> None:
    bench.stop()
    (bench.output / layout.FAILURE).write_bytes(content)
    assert status(bench).phase == "Interrupted"
    bench.run(more=RAISED)
    assert status(bench).phase == "Complete"
    assert leftovers(bench.output) == []


def test_what_cannot_be_written_down_does_not_hide_the_error(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise DataError("RecordCorrupt", "the disk is gone")

    monkeypatch.setattr("tokenization_worker.output.last_failure.place_bytes", refuse)
    bench.stop()  # raises QuarantineExceeded
    assert "cannot report this failure: the disk is gone" in caplog.text


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("with_plan", [True, False], ids=["", "moved-without-its-plan"])
@pytest.mark.parametrize(
    ("path", "damage"),
    [
        ("train/train_000001.npy", Path.unlink),
        ("train/train_000001.npy", cut),
        (layout.documents_path("train", 1), Path.unlink),
    ],
    ids=["missing", "short", "no-sidecar"],
)
def test_a_dataset_that_is_not_whole_is_not_complete(
    path: str, damage: Callable[[Path], None], with_plan: bool, bench: Bench
) -> None:
    bench.run()
    assert status(bench).phase == "Complete"
    if not with_plan:
        (bench.output / layout.PLAN).unlink()
    damage(bench.output / path)
    state = status(bench)
    assert (state.phase, state.reason) == ("Damaged", "DatasetIncomplete")
    assert f"1 file of the dataset is missing or of another size, the first: {bench.output}/{path}" in state.message
    assert "rerunToken" in state.next_step
    assert not verify(str(bench.output), mode="checksums", processes=1).is_clean


def test_a_dataset_without_its_shards_table_is_damaged(bench: Bench) -> None:
    bench.run()
    (bench.output / layout.SHARDS_TABLE).unlink()
    assert (status(bench).phase, status(bench).reason) == ("Damaged", "TableMissing")
