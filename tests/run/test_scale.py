"""The scale harness runs, and what makes it scale: no step of the driver grows with what is done already."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support.ledgers import ledger_of_ranges
from support.places import CHECKOUT
from support.runs import make_job
from tokenization_worker.api.data import DType
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.engine.task import WorkerState
from tokenization_worker.errors import ChangedError
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_receipt
from tokenization_worker.output.ledger.receipts import RangeReceipt, ShardReceipt, SliceResult
from tokenization_worker.output.plan_file import Cut, Plan
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.ledger import TokenizeLedger
from tokenization_worker.pipelines.tokenize.ranges.range_task import TokenizeTask
from tokenization_worker.pipelines.tokenize.schedule import RELEASED_A_TASK, TokenizeSchedule
from tokenization_worker.pipelines.tokenize.shard_builder import BuildTask
from tokenization_worker.pipelines.tokenize.shard_planner import ShardPlanner
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.storage.source_file import SourceFile


@pytest.mark.exhaustive
def test_the_harness_runs_to_its_end_at_a_small_size() -> None:
    words = ["--planned-files", "3000", "--files", "40", "--ranges", "200", "--latency-ms", "1", "--slots", "64"]
    command = [sys.executable, str(CHECKOUT / "benchmarks" / "scale.py"), *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    for row in ("plan of 3,000 files", "restart, ", "status: Complete, 200 of 200 ranges"):
        assert row in ran.stdout
    assert "Traceback" not in ran.stderr


@pytest.mark.exhaustive
def test_the_harness_of_shuffles_runs_to_its_end_at_a_small_size() -> None:
    command = [sys.executable, str(CHECKOUT / "benchmarks" / "scale_shuffle.py"), "--terabytes", "0.05"]
    ran = subprocess.run([*command, "--latency-ms", "1"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    for row in ("257 scattered objects", "shards, to its first task", "the end, 127 shards", "build, class B"):
        assert row in ran.stdout
    assert "Traceback" not in ran.stderr


# The decisions of a driver


def make_context(output: Path, shard_tokens: int) -> RunContext:
    job = make_job(Path("/src"), output, tokenizer={"name": "bytes"}, output={"shards": {"tokens": shard_tokens}})
    return RunContext(resolve_data(job), "plan", 0, "reference", DType.UINT16, 1, "")


def make_plan(range_files: list[int]) -> Plan:
    """A slice a range: range r is a piece of file `range_files[r]`."""
    n = len(range_files)
    cut = Cut(
        slice_file=np.array(range_files, np.int32),
        slice_start=np.zeros(n, np.int64),
        slice_end=np.full(n, -1, np.int64),
        range_slice=np.arange(n + 1, dtype=np.int64),
        range_bytes=np.full(n, 10, np.int64),
    )
    n_files = range_files[-1] + 1
    files = tuple(SourceFile(f"/{file}", 10, "v") for file in range(n_files))
    return Plan("plan", "data", "run", {}, files, (None,) * n_files, cut)


def receipt(range_id: int, file: int, tokens: int = 10) -> RangeReceipt:
    part = SliceResult(file, "Read", "", (tokens,), (1,), 1, {}, f"{range_id}")
    return RangeReceipt("plan", 0, range_id, (part,), "", 0, "", 0, 0, 10, 0, "reference", "here", 1, 0.0)


def shard_receipt(task: BuildTask) -> ShardReceipt:
    name = task.shard.name
    return ShardReceipt(
        "plan", 0, name.split, name.index, name.shard, "", 0, 0, 0, 0, "", "", "", task.shard.spans, "here", 1, 0.0
    )


def count_calls(ranges: int) -> int:
    """Calls of Python functions, generators' steps too, that a file of so many ranges costs a planner."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    plan = make_plan([0] * ranges)
    planner = ShardPlanner(plan.cut, 1, make_context(Path("/out"), 10**9).streams, 10**9)
    receipts = [receipt(range_id, 0) for range_id in range(ranges)]
    sys.setprofile(count)
    try:
        for item in receipts:
            planner.add(item)
    finally:
        sys.setprofile(None)
    assert planner.is_complete
    return calls


def test_a_file_of_many_ranges_costs_as_much_a_range_as_one_of_few() -> None:
    assert count_calls(2_000) / count_calls(500) < 6


@pytest.mark.parametrize("seed", range(8))
def test_a_segment_is_handed_to_be_deleted_once_and_when_no_shard_needs_it(seed: int) -> None:
    dice = random.Random(seed)
    plan = make_plan(sorted(dice.choices(range(30), k=200)))
    schedule = TokenizeSchedule(plan, make_context(Path("/out"), 25), TokenizeLedger(), frozenset())
    under_way: list[TokenizeTask | BuildTask] = []
    spent: list[int] = []
    built: set[int] = set()
    needed_by: dict[int, set[int]] = {}
    while True:
        while len(under_way) < 12 and (task := schedule.next_task()) is not None:
            assert len(task.releasable) <= RELEASED_A_TASK
            spent += task.releasable
            under_way.append(task)
            if isinstance(task, BuildTask):
                for piece in task.shard.spans:
                    assert piece.range_id not in spent
                    needed_by.setdefault(piece.range_id, set()).add(task.shard.name.index)
        if not under_way:
            break
        done = under_way.pop(dice.randrange(len(under_way)))
        if isinstance(done, TokenizeTask):
            schedule.done(done, receipt(done.range_id, done.slices[0].file))
        else:
            schedule.done(done, shard_receipt(done))
            built.add(done.shard.name.index)
        assert all(needed_by[range_id] <= built for range_id in spent)
    assert schedule.is_finished
    spent += schedule.take_releasable()
    assert sorted(spent) == list(range(200))


def test_shards_that_can_be_built_go_before_ranges() -> None:
    """Or segments would pile up until the last range is done."""
    schedule = TokenizeSchedule(
        make_plan(list(range(20))), make_context(Path("/out"), 15), TokenizeLedger(), frozenset()
    )
    kinds = ""
    while (task := schedule.next_task()) is not None:
        if isinstance(task, TokenizeTask):
            schedule.done(task, receipt(task.range_id, task.range_id))
            kinds += "r"
        else:
            schedule.done(task, shard_receipt(task))
            kinds += "s"
    assert kinds == "rrsrs" * 6 + "rrss"


def test_shards_wait_for_lost_segments_and_each_range_is_done_again_once() -> None:
    plan = make_plan(list(range(40)))
    ledger = ledger_of_ranges(receipt(range_id, range_id) for range_id in range(40))  # and no segment is there
    schedule = TokenizeSchedule(plan, make_context(Path("/out"), 15), ledger, frozenset())
    again: list[int] = []
    shards: list[int] = []
    while (task := schedule.next_task()) is not None:
        if isinstance(task, TokenizeTask):
            assert task.again
            again.append(task.range_id)
            schedule.done(task, receipt(task.range_id, task.range_id))
        else:
            shards.append(task.shard.name.index)
            schedule.done(task, shard_receipt(task))
    assert again == list(range(40))
    assert sorted(shards) == list(range(27))
    assert schedule.is_finished


def test_a_context_is_the_same_after_its_journey_with_a_task() -> None:
    context = make_context(Path("/out"), 10)
    task = TokenizeTask(context, 3, (), 10)
    assert pickle.loads(pickle.dumps(task)) == task
    assert len(pickle.dumps([task] * 2)) < len(pickle.dumps(task)) + 200
    other = make_context(Path("/elsewhere"), 10)
    assert pickle.loads(pickle.dumps(other)) == other != pickle.loads(pickle.dumps(context))


def test_receipts_that_arrive_hold_what_they_have_in_common_once() -> None:
    sent = [receipt(number, number) for number in range(3)]
    arrived = [pickle.loads(pickle.dumps(item)) for item in sent]
    assert arrived == sent
    for name in ("plan_id", "engine", "node"):
        assert len({id(getattr(item, name)) for item in arrived}) == 1
    assert len({id(item.slices[0].outcome) for item in arrived}) == 1


# A worker looks for its receipt


def test_a_range_that_another_run_has_done_is_not_read_again(tmp_path: Path) -> None:
    context = make_context(tmp_path / "out", 10)
    plan = make_plan([0])
    found = create_receipt(LocalStore(tmp_path / "out"), layout.range_receipt_path(0, 0), receipt(0, 0))
    task = TokenizeTask(context, 0, plan.slices(0), 10)  # its source is not there
    assert task.run(WorkerState("here")) == found


def test_a_range_whose_segment_is_lost_is_read_again_though_its_receipt_is_there(tmp_path: Path) -> None:
    context = make_context(tmp_path / "out", 10)
    create_receipt(LocalStore(tmp_path / "out"), layout.range_receipt_path(0, 0), receipt(0, 0))
    task = TokenizeTask(context, 0, make_plan([0]).slices(0), 10, again=True)
    with pytest.raises(ChangedError):  # it looked at its source
        task.run(WorkerState("here"))
