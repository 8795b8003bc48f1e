"""Which range is counted next, and when the counts are merged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.engine.task import Task, Worker, WorkerLost
from tokenization_worker.output.ledger.ledger import Ledger
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.pipelines.train.count_task import CountTask
from tokenization_worker.pipelines.train.merge_task import MergeTask
from tokenization_worker.pipelines.train.receipts import KINDS, CountReceipt
from tokenization_worker.pipelines.train.schedule import TrainSchedule
from tokenization_worker.planning.cut import Inside, cut_files
from tokenization_worker.readers.document_batch import Compression, FileKind
from tokenization_worker.storage.source_file import SourceFile

PACKED = FileKind(SourceFormat.JSONL, Compression.GZIP)
ONE, TWO = ("here", 1), ("here", 2)
CONTEXT: Any = SimpleNamespace(output_uri="out", plan_id="plan")
"""As much as a schedule reads of it."""


def schedule_of(stored_bytes: int, range_bytes: int) -> TrainSchedule:
    """Of one gzip file."""
    files = (SourceFile("/a.jsonl.gz", stored_bytes, "v"),)
    cut, kinds = cut_files(files, range_bytes, lambda file: Inside(PACKED, content_bytes=3 * file.size))
    plan = Plan("plan", "data", "run", {}, files, kinds, cut)
    return TrainSchedule(plan, CONTEXT, Ledger.of(KINDS), set(), {})


def take(schedule: TrainSchedule, worker: Worker, busy: int) -> Task | None:
    return schedule.next_task(worker=worker, busy=busy, slots=2)


def receipt_of(task: CountTask) -> CountReceipt:
    numbers = dict.fromkeys(CountReceipt.__struct_fields__, 0)
    texts = {"plan_id": "plan", "first_unusable": "", "node": "", "quarantined": {}, "dropped": ()}
    return CountReceipt(**{**numbers, **texts, "range_id": task.range_id})


def test_a_worker_goes_on_in_the_compressed_file_that_it_has_open() -> None:
    schedule = schedule_of(1200, 100)
    under_way: dict[Worker, Task | None] = {ONE: take(schedule, ONE, 0), TWO: take(schedule, TWO, 1)}
    read: dict[Worker, list[int]] = {ONE: [], TWO: []}
    while any(under_way.values()):
        for worker, task in under_way.items():
            if isinstance(task, CountTask):
                read[worker].append(task.range_id)
                schedule.done(task, receipt_of(task), worker)
                under_way[worker] = None if schedule.is_counted else take(schedule, worker, 1)
    assert sorted(read[ONE] + read[TWO]) == list(range(12))
    for ranges in read.values():
        assert ranges == list(range(ranges[0], ranges[-1] + 1))


def test_the_counts_are_merged_when_no_range_waits_or_is_read() -> None:
    schedule = schedule_of(300, 100)
    lost = take(schedule, ONE, 0)
    assert isinstance(lost, CountTask)
    schedule.worker_lost(lost, WorkerLost("killed", with_node=False), 1, ONE)
    for _ in range(3):
        task = take(schedule, TWO, 0)
        assert isinstance(task, CountTask)
        other = take(schedule, ONE, 1)
        assert not isinstance(other, MergeTask), "a range is read, or waits"
        if isinstance(other, CountTask):
            schedule.worker_lost(other, WorkerLost("killed", with_node=False), 1, ONE)
        schedule.done(task, receipt_of(task), TWO)
    merge = take(schedule, TWO, 0)
    assert isinstance(merge, MergeTask)
    assert [range_id for range_id, _, _ in merge.ranges] == [0, 1, 2]
    assert take(schedule, ONE, 1) is None
