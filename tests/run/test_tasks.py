"""The two tasks, one after the other in this process: what they leave alone, and what comes before a receipt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.command_line import sample_texts
from support.corpus import json_lines
from support.engine.inline import inline
from support.runs import difference, files_below, leftovers, make_job
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.engine.task import ProductLost, Task
from tokenization_worker.errors import ChangedError, DataError, SpecError
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_record
from tokenization_worker.output.ledger.crash_verdicts import read_crash_verdicts, record_crash_verdict
from tokenization_worker.output.record import load_record
from tokenization_worker.pipelines.tokenize.ranges import range_task
from tokenization_worker.pipelines.tokenize.ranges.range_task import TokenizeTask
from tokenization_worker.pipelines.tokenize.shard_builder import BuildTask
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.readers.document_batch import FileSlice
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.storage.local.upload import version_of
from tokenization_worker.storage.open import open_store


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(json_lines(sample_texts("a", 60)) + b"no JSON\n")
    return folder


def job_of(source: Path, output: Path, **fields: str | int) -> TokenizationJob:
    blocks = {"tokenizer": {"name": "bytes"}, "output": {"shards": {"tokens": 500}}}
    return make_job(source, output, blocks, maxQuarantined=1, **fields)


@pytest.mark.parametrize("at", ["shard", "sidecar"])
def test_a_foreign_file_that_comes_after_the_plan_is_not_replaced(at: str, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    sidecar, shard = layout.documents_path("train", 0), "train/train_000000.npy"
    foreign = output / (shard if at == "shard" else sidecar)

    def put_there(task: Task) -> None:
        if isinstance(task, BuildTask) and not foreign.exists():
            foreign.parent.mkdir(parents=True)
            foreign.write_bytes(b"somebody's")

    with pytest.raises(ChangedError) as caught:
        run_job(job_of(source, output), executor=inline(put_there))
    assert caught.value.reason == "OutputConflict"
    assert shard in caught.value.message
    assert foreign.read_bytes() == b"somebody's"
    assert not (output / layout.shard_receipt_path(0, "train", 0)).exists()


@pytest.mark.parametrize("folder", ["segments", "quarantine"])
def test_a_range_has_no_receipt_before_what_it_tells_of_is_written(folder: str, source: Path, tmp_path: Path) -> None:
    output, expected = tmp_path / "out", tmp_path / "expected"
    obstacle = output / layout.LEDGER / "0" / folder

    def obstruct(task: Task) -> None:
        assert isinstance(task, TokenizeTask)
        obstacle.parent.mkdir(parents=True)
        obstacle.write_bytes(b"no folder")

    with pytest.raises(SpecError) as caught:
        run_job(job_of(source, output), executor=inline(obstruct))
    assert caught.value.reason == "OutputNotWritable"
    assert [path for path in files_below(output) if "/ranges/" in path] == []

    obstacle.unlink()
    for folder_of in (output, expected):
        run_job(job_of(source, folder_of), executor=inline())
    assert difference(output, expected) is None
    assert leftovers(output) == []


def test_what_a_concurrent_run_has_mended_is_not_done_again(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    run_job(job_of(source, output), executor=inline())
    shard = output / "train" / "train_000001.npy"
    before = shard.read_bytes()
    shard.unlink()
    seen: list[type[Task]] = []

    def let_another_run_finish(task: Task) -> None:
        if isinstance(task, BuildTask) and BuildTask not in seen:
            run_job(job_of(source, output, rerunToken="2"), executor=inline())
            assert shard.read_bytes() == before
        seen.append(type(task))

    run_job(job_of(source, output, rerunToken="3"), executor=inline(let_another_run_finish))

    assert seen == [TokenizeTask, BuildTask]
    assert shard.read_bytes() == before
    assert len(list((output / layout.RERUNS).iterdir())) == 2


def test_a_segment_that_a_concurrent_run_has_written_again_is_left_alone(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    segment = output / layout.segment_path(0, 0)
    versions: list[str] = []

    def find_the_one_before_torn(task: Task) -> None:
        if isinstance(task, BuildTask):
            versions.append(version_of(segment.stat()))
            if len(versions) == 1:
                raise ProductLost(0, "torn", version="the version before")

    run_job(job_of(source, output), executor=inline(find_the_one_before_torn))

    assert len(versions) > 1
    assert len(set(versions)) == 1


def test_a_lost_list_of_a_file_that_was_dropped_later_is_written_again_as_it_was(tmp_path: Path) -> None:
    """Its range was done before the damage was found, and is done again knowing of it: its receipt still counts."""
    source, output = tmp_path / "src", tmp_path / "out"
    source.mkdir()
    texts = [None if row % 10 == 0 else f"{row} {'text of a row ' * 200}" for row in range(200)]
    groups = pa.table({"text": texts})
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(groups, source / "a.parquet", row_group_size=50, **options)
    damaged = bytearray((source / "a.parquet").read_bytes())
    damaged[pq.ParquetFile(source / "a.parquet").metadata.row_group(3).column(0).data_page_offset + 50_000] ^= 0xFF
    (source / "a.parquet").write_bytes(damaged)
    (source / "b.jsonl").write_bytes(json_lines(["fine"] * 50) + b"not JSON\n")
    fields = {"tokenizer": {"name": "bytes"}, "rangeBytes": "64Ki", "maxCorruptFiles": 1}
    with pytest.raises(DataError, match="QuarantineExceeded"):
        run_job(make_job(source, output, fields, maxQuarantined=0), executor=inline())
    first, *_ = sorted((output / layout.quarantine_prefix(0)).iterdir())
    expected = first.read_bytes()
    first.unlink()

    finished = run_job(make_job(source, output, fields, maxQuarantined=1), executor=inline())

    assert (finished.files_dropped, finished.documents_written, finished.documents_quarantined) == (1, 50, 1)
    assert first.read_bytes() == expected


def test_the_driver_reads_no_tokens(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process could not do it for hundreds of hosts."""
    seen: list[str] = []

    def watch(name: str) -> None:
        call = getattr(LocalStore, name)

        def watched(store: LocalStore, path: str, *more: Any, **named: Any) -> Any:
            seen.append(path)
            return call(store, path, *more, **named)

        monkeypatch.setattr(LocalStore, name, watched)

    for name in ("read", "read_range", "read_ranges", "local_path", "upload"):
        watch(name)
    run_job(job_of(source, tmp_path / "out"), options=Options(processes=2))
    assert layout.PLAN in seen
    assert [path for path in seen if path.endswith(".npy") or "/segments/" in path] == []


def put_into(output: Path, files: dict[str, bytes]) -> None:
    for path, data in files.items():
        (output / path).parent.mkdir(parents=True, exist_ok=True)
        (output / path).write_bytes(data)


@pytest.mark.parametrize("found", ["before a range", "after a range", "after a shard", "by the next start"])
def test_a_receipt_of_another_plan_is_not_believed(
    found: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of a run that was cleaned away may be late."""
    other, output = tmp_path / "other", tmp_path / "out"

    def remember(task: Task) -> None:
        if isinstance(task, BuildTask):
            names = [name for name in files_below(other) if "/segments/" in name or "/quarantine/" in name]
            with_it.update({name: (other / name).read_bytes() for name in names})

    with_it: dict[str, bytes] = {}
    run_job(job_of(source, other), executor=inline(remember))
    (source / "a.jsonl").write_bytes(json_lines(sample_texts("b", 60)))
    kind = BuildTask if found == "after a shard" else TokenizeTask
    path = layout.shard_receipt_path(0, "train", 0) if kind is BuildTask else layout.range_receipt_path(0, 0)
    if found == "after a range":
        monkeypatch.setattr(range_task, "find_receipt", lambda *_: None)

    def come_late(task: Task) -> None:
        if isinstance(task, kind):
            put_into(output, {path: (other / path).read_bytes()})
            if found in ("before a range", "by the next start"):
                put_into(output, with_it)
            if found == "by the next start":
                raise KeyboardInterrupt

    late = inline(come_late)
    if found == "by the next start":
        with pytest.raises(KeyboardInterrupt):
            run_job(job_of(source, output), executor=late)
        late = inline()
    with pytest.raises(ChangedError, match="belongs to plan") as caught:
        run_job(job_of(source, output), executor=late)
    assert caught.value.reason == "OutputConflict"
    assert path in caught.value.message
    assert not (output / layout.INDEX).exists()


def test_the_first_verdict_on_a_damaged_file_counts_for_everybody(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    (source / "b.jsonl.zst").write_bytes(b"(\xb5/\xfd no zstd at all")
    verdict = {"file": 1, "uri": "b", "outcome": "CorruptFile", "offset": 0, "detail": "the first one's words"}

    def be_first(task: Task) -> None:
        if isinstance(task, TokenizeTask):
            create_record(open_store(str(output)), layout.verdict_path(1), verdict)

    run_job(job_of(source, output, maxCorruptFiles=1), executor=inline(be_first))
    rows = [json.loads(line) for line in zstd.decompress((output / layout.FILES_TABLE).read_bytes()).splitlines()]
    assert rows[1]["detail"] == "the first one's words"
    assert load_record((output / layout.verdict_path(1)).read_bytes()) == verdict


def test_the_first_verdict_on_a_document_counts_for_everybody(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    part = FileSlice(file=0, uri="a.jsonl", size=9, version="1")
    first = record_crash_verdict(store, part, 3, "text", "exit code 7")
    before = files_below(tmp_path)
    assert record_crash_verdict(store, part, 3, "text", "killed by SIGSEGV") == first
    assert read_crash_verdicts(store) == {0: (first,)}
    assert first.detail == "exit code 7"
    assert files_below(tmp_path) == before
