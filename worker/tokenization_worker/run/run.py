"""A run, from manifest to index. Read `run_job` as the table of contents.

Every start does the same: decide what is at the output, adopt or write the plan, read the ledger, do what is missing,
commit. There is no resume mode. Token bytes never pass through here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Never, get_args

from tokenization_worker.api.arguments import (
    require_count,
    require_function,
    require_instance,
    require_job,
    require_one_of,
    require_processes,
)
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import run_key
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.engine.executor import Executor
from tokenization_worker.engine.local import LocalExecutor
from tokenization_worker.errors import SpecError
from tokenization_worker.events import Finished, Watcher, ignore
from tokenization_worker.host.main_guard import require_main_guard
from tokenization_worker.output.create_only import Disagreement
from tokenization_worker.output.last_failure import recording_failure
from tokenization_worker.output.plan_file import Scattering, read_plan
from tokenization_worker.output.versions import describe_versions
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.pipeline import Work, do_missing_work, is_done_without_workers
from tokenization_worker.planning.limits import QuarantineExceeded
from tokenization_worker.planning.prepare import Prepared
from tokenization_worker.planning.scattering import needed_bytes
from tokenization_worker.processes import default_processes
from tokenization_worker.run.begin import Begun, begin_run
from tokenization_worker.run.finish import describe_complete, finish_run
from tokenization_worker.run.repair import explain_disagreement
from tokenization_worker.run.run_plan import CompleteRun, RunPlan, plan_run
from tokenization_worker.storage.base import Store
from tokenization_worker.storage.open import open_store
from tokenization_worker.storage.schemes import scheme_of
from tokenization_worker.tokenizers.checks.engine_check import EngineWanted, engine_by_name
from tokenization_worker.tokenizers.checks.sample import SAMPLE_ONE_IN


@dataclass(frozen=True, slots=True)
class Options:
    """How to run; none of it changes a byte. `engine`: auto, reference or fastokens. Raises `SpecError`.

    `count_processes` is asked where `processes` is None, when there is work to plan.
    """

    processes: int | None = None
    engine: EngineWanted = "auto"
    sample_one_in: int = SAMPLE_ONE_IN
    count_processes: Callable[[], int] = default_processes

    def __post_init__(self) -> None:
        require_processes(self.processes)
        require_count("sample_one_in", self.sample_one_in)
        require_one_of("engine", self.engine, get_args(EngineWanted))

    def count(self) -> int:
        """Processes that ranges should keep busy."""
        return self.processes or self.count_processes()


ExecutorFactory = Callable[[Prepared, RunContext], Executor]


def run_job(
    job: TokenizationJob,
    *positional: Never,
    options: Options | None = None,
    executor: ExecutorFactory | None = None,
    on_progress: Watcher = ignore,
    should_stop: Callable[[], bool] = lambda: False,
) -> Finished:
    """Run `job` to its index, or verify that it is there.

    Raises the classes of `errors`, and `engine.dispatch.Stopped` after `should_stop` returned true. Whatever happens,
    what is done stays done: call again with the same job.
    """
    require_job("run_job", job)
    if positional:
        words = f"run_job takes a job, and the rest by keyword; found {positional[0]!r} without one"
        raise SpecError("SpecInvalid", words, next_step="write run_job(job, options=Options(processes=...))")
    require_instance("options", options, Options)
    require_function("on_progress", on_progress, "on_progress(event)")
    require_function("should_stop", should_stop, "should_stop() -> bool")
    require_main_guard("run_job")
    options = options or Options()
    with _planning(job, options, on_progress) as (found, life):
        if isinstance(found, CompleteRun):
            return describe_complete(found)
        start = executor or _local(options, found.plan.scattering)
        begun = begin_run(found, options.sample_one_in, on_progress)

        def do_work(work: Work) -> bool:
            with _explaining(begun):
                do_missing_work(work, lambda: start(begun.prepared, begun.context), on_progress, should_stop)
            return True

        finished = finish_run(begun, do_work, on_progress, should_stop, life)
        assert finished is not None, "all work is done"
        return finished


class PlanOnly(NamedTuple):
    """The result of planning without workers. `finished` None: tasks are left, and what is needed for them is there."""

    found: RunPlan | CompleteRun
    finished: Finished | None


def plan_without_workers(
    job: TokenizationJob, options: Options, require_workers: Callable[[], None], on_progress: Watcher
) -> PlanOnly:
    """Write the plan of `job`, and finish the run where all that is left needs no worker: what the plan Pod does.

    Where workers are needed, `require_workers` may raise; and so does what the run would certainly end with.
    """
    with _planning(job, options, on_progress) as (found, life):
        if isinstance(found, CompleteRun):
            return PlanOnly(found, describe_complete(found))
        begun = begin_run(found, options.sample_one_in, on_progress)

        def is_done(work: Work) -> bool:
            with _explaining(begun):
                return is_done_without_workers(work)

        finished = finish_run(begun, is_done, on_progress, lambda: False, life)
        if finished is None:
            if found.prepared.foreseen is not None:
                raise found.prepared.foreseen
            require_workers()
        return PlanOnly(found, finished)


@contextmanager
def _planning(
    job: TokenizationJob, options: Options, watch: Watcher
) -> Iterator[tuple[RunPlan | CompleteRun, ExitStack]]:
    """What the run does, and how long it shows that it goes on; an error is recorded for `tokjob status`."""
    store = open_store(resolve_data(job).output.uri)
    found: RunPlan | CompleteRun | None = None
    with recording_failure(store, lambda: _is_planned(store, job)), ExitStack() as life:
        try:
            found = plan_run(store, job, options.engine, options.count, watch, life)
            yield found, life
        except QuarantineExceeded as error:
            hint = found.prepared.hint if isinstance(found, RunPlan) else ""
            if not hint or hint in error.next_step:
                raise
            step = f"{hint}; {error.next_step}"  # what the plan knows of the cause, as `tokjob plan` tells it
            raise QuarantineExceeded("QuarantineExceeded", error.message, next_step=step) from error


def _is_planned(store: Store, job: TokenizationJob) -> bool:
    """Whether the unfinished run that is there is one of this job."""
    plan = read_plan(store)
    return plan is not None and plan.run_key == run_key(job)


@contextmanager
def _explaining(begun: Begun) -> Iterator[None]:
    """Name the versions of libraries, where they may be why two writers disagree."""
    try:
        yield
    except Disagreement as error:
        now, ranges = describe_versions(begun.prepared.tokenizer.libraries), begun.ledger.ranges.values()
        changed = explain_disagreement(begun.store.uri, begun.repair, begun.context.versions, now, ranges, error)
        if changed is None:
            raise
        raise changed from error


def _count_local(options: Options, prepared: Prepared, scattering: Scattering | None) -> int:
    """As many processes as the options say; where they say no number, no more than hold a window of a shuffle each."""
    needed = needed_bytes(prepared, scattering)
    if options.processes is not None or needed is None:
        return options.count()
    return min(options.count(), default_processes(task_bytes=needed))


def _local(options: Options, scattering: Scattering | None) -> ExecutorFactory:
    """Processes on this machine, forked where that is safe: with nothing but local files."""

    def make(prepared: Prepared, context: RunContext) -> Executor:
        uris = [prepared.data.output.uri, *prepared.data.source.uris]
        is_local = all(scheme_of(uri) == "file" for uri in uris)
        if is_local:
            engine_by_name(prepared.tokenizer, context.engine)  # loaded here once, shared by forked workers
        return LocalExecutor(_count_local(options, prepared, scattering), fork=is_local)

    return make
