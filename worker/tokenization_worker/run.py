"""A run, from manifest to index. Read `run_job` as the table of contents.

Every start does the same: look at what is there, adopt or write the plan, read the ledger, do what is
missing, commit. There is no resume mode. Token bytes never pass through here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from tokenization_worker import layout
from tokenization_worker.adoption import (
    planned_pins,
    probe_output,
    read_plan,
    refuse_foreign_files,
    require_own_index,
    require_own_plan,
    write_plan,
)
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import run_key
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.arguments import require_count, require_one_of, require_processes
from tokenization_worker.commit import Disagreement, create_record
from tokenization_worker.context import RunContext
from tokenization_worker.epochs import REFERENCE, Epoch, current_epoch, start_epoch
from tokenization_worker.errors import ChangedError, SpecError
from tokenization_worker.events import Finished, Planned, Resumed, Warned, Watcher, ignore
from tokenization_worker.executors.base import Executor
from tokenization_worker.executors.local import LocalExecutor
from tokenization_worker.finish import commit
from tokenization_worker.index import Index, is_proven, read_index
from tokenization_worker.lanes import stretches
from tokenization_worker.ledger import Ledger, read_ledger, remove_scratch
from tokenization_worker.plan import Plan
from tokenization_worker.planning import (
    Prepared,
    make_plan_of,
    prepare,
    require_room,
    require_shards,
)
from tokenization_worker.processes import default_processes
from tokenization_worker.proof import find_changed_shards, find_damaged_shards, require_tables
from tokenization_worker.readers.documents import FileOutcome
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.storage.open import open_store, scheme_of
from tokenization_worker.tokenizers.probe import EngineWanted, choose_engine, engine_by_name
from tokenization_worker.tokenizers.sample import SAMPLE_ONE_IN
from tokenization_worker.work import Work, do_missing_work


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


ExecutorFactory = Callable[[Prepared, RunContext], Executor]


def run_job(
    job: TokenizationJob,
    *,
    options: Options | None = None,
    executor: ExecutorFactory | None = None,
    on_progress: Watcher = ignore,
    should_stop: Callable[[], bool] = lambda: False,
) -> Finished:
    """Run `job` to its index, or prove that it is there.

    Raises the classes of `errors`, and `work.Stopped` after `should_stop` returned true. Whatever happens, what
    is done stays done: call again with the same job.
    """
    options = options or Options()
    store = open_store(resolve_data(job).output.uri)
    index = read_index(store)
    if index is not None and is_proven(store, index, run_key(job)):
        remove_scratch(store)
        return _finished(store, index, already=True)

    prepared = _prepare(job, store, on_progress)
    if index is not None:
        require_own_index(store, index, prepared)
        require_tables(store, index)
    plan, is_new = _fix_plan(store, index, prepared, options, on_progress)
    epoch = _fix_epoch(store, index, prepared, options, on_progress)
    context = _context(prepared, plan, epoch, options)
    ledger = read_ledger(store, plan, epoch.number)
    damaged = find_damaged_shards(store) if index is not None else _find_damaged(store, ledger)
    on_progress(
        Planned(
            files=len(plan.files),
            stored_bytes=prepared.stored_bytes,
            ranges=plan.n_ranges,
            estimated_tokens=prepared.estimate.tokens,
            core_seconds=prepared.estimate.core_seconds(epoch.engine),
            tokenizer=prepared.tokenizer.name,
            engine=epoch.engine,
            is_accelerated=epoch.engine not in (REFERENCE, prepared.tokenizer.reference.name),
            adopted=not is_new,
        )
    )
    if ledger.ranges:
        done = tuple(stretches(sorted(ledger.ranges)))
        on_progress(Resumed(len(ledger.ranges), done, plan.n_ranges, len(ledger.shards)))

    if index is None or damaged:
        work = Work(store, plan, context, ledger, prepared.limits, damaged)
        start = executor or _local(options)
        do_missing_work(work, lambda: start(prepared, context), on_progress, should_stop)
    if index is None:
        index = commit(store, plan, context, ledger, prepared.tokenizer, prepared.limits)
    else:
        _require_mended(store, damaged)
    if index["run"]["runKey"] != prepared.run_key:
        create_record(store, layout.rerun_path(prepared.run_key), {"runKey": prepared.run_key})
    remove_scratch(store)
    return _finished(store, index, already=False, rebuilt=len(damaged), prepared=prepared)


def _prepare(job: TokenizationJob, store: Store, watch: Watcher) -> Prepared:
    """The plan phase; a source that cannot be listed any more is a change if a plan of this job exists."""
    try:
        return prepare(job, watch, planned_pins(store, job))
    except SpecError as error:
        plan = read_plan(store) if error.reason == "SourceInvalid" else None
        if plan is None or plan.run_key != run_key(job):
            raise
        raise ChangedError(
            "SourceChanged",
            f"changed since the plan was made: {error.message}",
            next_step="put the planned files back, or start a new run at another output.uri",
        ) from error


def _fix_plan(
    store: Store, index: Index | None, prepared: Prepared, options: Options, watch: Watcher
) -> tuple[Plan, bool]:
    """The plan that counts: the one that is there, or a new one. Also whether it is ours.

    A dataset of this data without a plan was moved: its shards are no foreign files.
    """
    plan = read_plan(store)
    if plan is None:
        if index is None:
            refuse_foreign_files(store, prepared)
            require_room(store, prepared.estimate, watch)
            require_shards(prepared)
        _probe(store)
        mine = make_plan_of(prepared, options.processes or options.count_processes())
        plan = write_plan(store, mine)
        if plan is mine:
            return plan, True
    require_own_plan(store, plan, prepared, watch)
    _probe(store)
    return plan, False


def _probe(store: Store) -> None:
    """Refuse an output that cannot be written or tidied; on local disks the plan itself, written first, tells."""
    if store.local_path("") is None:
        probe_output(store)


def _fix_epoch(store: Store, index: Index | None, prepared: Prepared, options: Options, watch: Watcher) -> Epoch:
    """The current epoch; the first start chooses the engine for all of them.

    An engine that was voided when a moved dataset was made is not tried again.
    """
    try:
        epoch = current_epoch(store)
    except NotFound:
        was_voided = index is not None and index["run"]["epochs"]
        engine: EngineWanted = "reference" if was_voided else options.engine
        choice = choose_engine(prepared.tokenizer, engine, prepared.estimate.source_bytes)
        return start_epoch(store, choice.name)
    wanted = prepared.tokenizer.reference.name if options.engine == REFERENCE else options.engine
    if wanted not in ("auto", epoch.engine):
        watch(Warned(f"engine {options.engine} is not used: this run began with {epoch.engine}, and a run has one"))
    return epoch


def _find_damaged(store: Store, ledger: Ledger) -> frozenset[tuple[str, int]]:
    """Shards of an unfinished run that somebody deleted or changed since they were written."""
    return frozenset((shard.split, shard.index) for shard in find_changed_shards(store, ledger.shards.values()))


def _require_mended(store: Store, damaged: frozenset[tuple[str, int]]) -> None:
    """Raise `Disagreement` where shards that were written again are still not what the dataset's table says."""
    left = sorted(find_damaged_shards(store, among=damaged)) if damaged else []
    if left:
        split, number = left[0]
        raise Disagreement(
            "NotDeterministic",
            f"{store.uri}: shard {number} of split {split} was written again and differs from {layout.SHARDS_TABLE} "
            f"({len(left)} such shards)",
            next_step="start the same command again; if it stays so, please report it with the index",
        )


def _context(prepared: Prepared, plan: Plan, epoch: Epoch, options: Options) -> RunContext:
    return RunContext(
        data=prepared.data,
        plan_id=plan.plan_id,
        epoch=epoch.number,
        engine=epoch.engine,
        dtype=prepared.dtype,
        sample_one_in=options.sample_one_in,
        fingerprint=prepared.tokenizer.fingerprint,
    )


def _local(options: Options) -> ExecutorFactory:
    """Processes on this machine, forked where that is safe: with nothing but local files."""

    def make(prepared: Prepared, context: RunContext) -> Executor:
        uris = [prepared.data.output.uri, *prepared.data.source.uris]
        is_local = all(scheme_of(uri) == "file" for uri in uris)
        if is_local:
            engine_by_name(prepared.tokenizer, context.engine)  # loaded here once, shared by forked workers
        return LocalExecutor(options.processes or options.count_processes(), fork=is_local)

    return make


def _finished(
    store: Store, index: Index, *, already: bool, rebuilt: int = 0, prepared: Prepared | None = None
) -> Finished:
    conservation = index["conservation"]
    quarantined = sum(conservation["quarantined"].values())
    limit = None if prepared is None else prepared.limits.max_quarantined.allowed(conservation["read"])
    files = conservation["files"]
    return Finished(
        uri=store.uri,
        already=already,
        rebuilt=rebuilt,
        documents_read=conservation["read"],
        documents_written=conservation["written"],
        documents_quarantined=quarantined,
        files_dropped=sum(files.values()) - files[FileOutcome.READ],
        tokens=index["tokens"],
        text_bytes=index["run"]["textBytes"],
        shards=sum(split["shards"] for split in index["splits"]),
        quarantine_limit=limit,
    )
