"""The loop of a run: what it tells its watcher, and what that costs."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

from support.ledgers import RANGES, ledger_of_ranges, plan_of_small_files, receipt
from support.runs import make_job
from tokenization_worker.api.data import DType
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.events import Progress
from tokenization_worker.output.ledger.receipts import RangeReceipt
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.progress import ProgressSums
from tokenization_worker.pipelines.tokenize.ranges.range_task import TokenizeTask
from tokenization_worker.pipelines.tokenize.schedule import TokenizeSchedule

DONE_BEFORE = RANGES - 4


def done(schedule: TokenizeSchedule, receipt: RangeReceipt, context: RunContext) -> None:
    schedule.done(TokenizeTask(context, receipt.range_id, (), 10), receipt)


def test_each_receipt_is_told_once_and_costs_the_same_however_much_is_done() -> None:
    plan = plan_of_small_files()
    data = resolve_data(make_job(Path("/src"), Path("/out"), output={"shards": {"tokens": 10**9}}))
    context = RunContext(data, "plan", 0, "reference", DType.UINT16, 1, "")
    ledger = ledger_of_ranges(receipt(range_id) for range_id in range(DONE_BEFORE))
    schedule = TokenizeSchedule(plan, context, ledger, frozenset())
    progress = ProgressSums(plan, schedule, ledger)
    told: list[Progress] = [progress.after(None)]

    tracemalloc.start()
    done(schedule, receipt(DONE_BEFORE + 2), context)
    told.append(progress.after(receipt(DONE_BEFORE + 2)))
    done(schedule, receipt(7), context)  # a lost segment, made again
    told.append(progress.after(receipt(7)))
    done(schedule, receipt(DONE_BEFORE), context)  # two at once
    done(schedule, receipt(DONE_BEFORE + 1), context)
    told.append(progress.after(receipt(DONE_BEFORE + 1)))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    counts = [event.ranges_done for event in told]
    assert counts == [DONE_BEFORE, DONE_BEFORE + 1, DONE_BEFORE + 1, RANGES - 1]
    for event, count in zip(told, counts, strict=True):
        sums = (event.bytes_done, event.source_bytes, event.tokens, event.documents, event.quarantined)
        assert sums == (10 * count, 20 * count, 7 * count, 2 * count, count)
    assert peak_bytes < 100_000
