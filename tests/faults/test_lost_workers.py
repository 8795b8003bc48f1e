"""A task whose worker is gone is done again, but not for ever."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from support.command_line import sample_texts
from support.corpus import json_lines
from support.engine.inline import inline
from support.runs import difference, leftovers, make_job
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.engine import local
from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.engine.task import Task, WorkerLost, WorkerState
from tokenization_worker.engine.task_progress import OnAdvance
from tokenization_worker.errors import TemporaryError, portable
from tokenization_worker.events import Event, Warned
from tokenization_worker.pipelines.tokenize.ranges.range_task import TokenizeTask
from tokenization_worker.pipelines.tokenize.shard_builder import BuildTask
from tokenization_worker.run.run import Options, run_job

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Echo:
    """A task that gives itself as its receipt."""

    product: str
    output_uri: str = ""

    def run(self, worker: WorkerState, on_advance: OnAdvance) -> Echo:
        return self

    def to_dict(self) -> dict[str, Any]:
        return {"product": self.product}


KINDS = {"range": TokenizeTask, "shard": BuildTask}


def job_of(source: Path, output: Path) -> TokenizationJob:
    return make_job(source, output, tokenizer={"name": "bytes"}, output={"shards": {"tokens": 500}})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("with_node", "times"), [(False, 2), (True, 19)], ids=["worker", "node"])
def test_what_a_lost_worker_was_doing_is_done_again(
    kind: str, with_node: bool, times: int, source: Path, tmp_path: Path
) -> None:
    output, expected = tmp_path / "out", tmp_path / "expected"
    lost: list[Task] = []
    warnings: list[str] = []

    def lose(task: Task) -> None:
        if isinstance(task, KINDS[kind]) and len(lost) < times:
            lost.append(task)
            raise WorkerLost("gone", with_node=with_node)

    def watch(event: Event) -> None:
        if isinstance(event, Warned):
            warnings.append(event.message)

    run_job(job_of(source, output), executor=inline(lose), on_progress=watch)
    run_job(job_of(source, expected), executor=inline())
    assert difference(output, expected) is None
    assert leftovers(output) == []
    assert len(warnings) == times
    assert all(f"lost its {'node' if with_node else 'worker'} and is retried: gone" in text for text in warnings)


@pytest.mark.parametrize(
    ("kind", "named"), [("range", "range 0 ({source}/a.jsonl)"), ("shard", "shard 0 of split train")]
)
@pytest.mark.parametrize(("with_node", "times"), [(False, 3), (True, 20)], ids=["worker", "node"])
def test_a_task_that_loses_every_worker_ends_the_run(
    kind: str, named: str, with_node: bool, times: int, source: Path, tmp_path: Path
) -> None:
    lost: list[Task] = []

    def lose(task: Task) -> None:
        if isinstance(task, KINDS[kind]):
            lost.append(task)
            raise WorkerLost("gone", with_node=with_node)

    with pytest.raises(TemporaryError) as caught:
        run_job(job_of(source, tmp_path / "out"), executor=inline(lose))
    assert caught.value.reason == "WorkerDied"
    assert f"{named.format(source=source)} lost its {'node' if with_node else 'worker'} {times} times" in str(
        caught.value
    )
    mine = [task for task in lost if not isinstance(task, BuildTask) or task.shard == lost[0].shard]  # type: ignore[union-attr]
    assert len(mine) == times


def test_a_range_that_takes_node_after_node_along_is_isolated_too(source: Path, tmp_path: Path) -> None:
    """As where the kernel ends a container as a whole when its memory is used up."""
    output, expected = tmp_path / "out", tmp_path / "expected"
    lost: list[TokenizeTask] = []

    def lose(task: Task) -> None:
        if isinstance(task, TokenizeTask) and len(lost) < 4:
            lost.append(task)
            raise WorkerLost("gone", with_node=True)

    run_job(job_of(source, output), executor=inline(lose))
    run_job(job_of(source, expected), executor=inline())
    assert [task.isolated for task in lost] == [False, False, False, True]
    assert difference(output, expected) is None


def test_a_signal_that_takes_the_workers_along_is_a_stop_and_no_loss(source: Path, tmp_path: Path) -> None:
    events: list[Event] = []
    signals: list[Task] = []

    def kill_the_group(task: Task) -> None:
        signals.append(task)
        raise WorkerLost("killed by SIGTERM", with_node=False)

    with pytest.raises(Stopped):
        run_job(
            job_of(source, tmp_path / "out"),
            executor=inline(kill_the_group),
            on_progress=events.append,
            should_stop=lambda: bool(signals),
        )
    assert len(signals) == 1
    assert not [event for event in events if isinstance(event, Warned)]


@pytest.mark.parametrize(("is_stopping", "error"), [(False, TemporaryError), (True, Stopped)], ids=["run", "stopping"])
def test_a_worker_that_dies_while_the_pool_starts_is_no_bug(
    is_stopping: bool, error: type[Exception], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "begin_worker", lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(error, match=r"^WorkerDied: |^$"):
        run_job(job_of(source, tmp_path / "out"), options=Options(processes=1), should_stop=lambda: is_stopping)


def interrupt_at(number: int) -> Callable[[FrameType, str, Any], Any]:
    """A trace function that raises what Ctrl-C does before the `number`-th line of the executor, in this process."""
    me, lines = os.getpid(), itertools.count(1)

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        del argument
        if frame.f_code.co_filename != local.__file__ or os.getpid() != me:
            return None
        if event == "line" and next(lines) == number:
            raise KeyboardInterrupt
        return trace

    return trace


@pytest.mark.sampled(3)
@pytest.mark.parametrize("first", [1, 2, 3])
def test_ctrl_c_anywhere_leaves_no_process_that_is_not_ended(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before every third line, from the `first` on."""
    is_interrupted = True
    for number in itertools.count(first, 3):
        executor = None
        sys.settrace(interrupt_at(number))
        try:
            executor = local.LocalExecutor(2, fork=True)
            executor.submit(Echo("first"))
            executor.submit(Echo("second"))
            while executor.wait(10):
                executor.submit(Echo("third"))
                if executor.wait(10):
                    break
            is_interrupted = False
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
            if executor is not None:
                executor.close()
        left = multiprocessing.active_children()
        assert all(process.daemon for process in left), number  # such as are ended when this process ends
        assert executor is None or not left, number
        for process in left:
            process.kill()
            process.join()
        if not is_interrupted:
            break
    assert number > 30


class Picky(Exception):
    """Pickles, and does not unpickle: as exceptions of some libraries do."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


class Open(Exception):
    """Does not pickle."""

    def __init__(self) -> None:
        super().__init__("held open")
        self.pipe = multiprocessing.Pipe()[0]
        self.lock = lambda: None


@pytest.mark.parametrize(("error", "told"), [(Picky(7, "words"), "Picky: words"), (Open(), "Open: held open")])
def test_what_a_foreign_exception_says_arrives(error: Exception, told: str) -> None:
    error.add_note("in process 1")
    arrived = pickle.loads(pickle.dumps(portable(error)))
    assert str(arrived) == told
    assert arrived.__notes__ == ["in process 1"]


class Garbled(Exception):
    """Says more than it was made with: made again from its own words, it says it twice."""

    def __init__(self, code: object) -> None:
        super().__init__(f"code {code}")


def test_an_exception_that_would_arrive_with_other_words_is_told_as_it_was() -> None:
    assert str(pickle.loads(pickle.dumps(portable(Garbled(5))))) == "Garbled: code 5"


def test_an_exception_that_can_be_sent_is_sent_as_it_is() -> None:
    error = TemporaryError("StorageFailed", "no", next_step="wait")
    assert portable(error) is error


def test_what_a_lost_task_was_to_delete_is_deleted_all_the_same(source: Path, tmp_path: Path) -> None:
    (source / "b.jsonl").write_bytes(json_lines(sample_texts("b", 200)))
    job = make_job(
        source, tmp_path / "out", tokenizer={"name": "bytes"}, output={"shards": {"tokens": 500}}, rangeBytes="4Ki"
    )
    lost: list[Task] = []
    given: list[int] = []

    def lose(task: Task) -> None:
        if task.releasable and not lost:
            lost.append(task)
            raise WorkerLost("gone", with_node=False)
        given.extend(task.releasable)

    run_job(job, executor=inline(lose))
    assert lost
    assert set(lost[0].releasable) <= set(given)
