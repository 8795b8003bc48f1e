"""A run, from manifest to index. Read `run_job` as the table of contents.

Every start does the same: look at what is there, adopt or write the plan, read the ledger, do what is
missing, commit. There is no resume mode. Token bytes never pass through here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Never, get_args

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
from tokenization_worker.errors import DataError, SpecError
from tokenization_worker.events import Committing, Finished, Planned, Resumed, Warned, Watcher, ignore
from tokenization_worker.host.main_guard import require_main_guard
from tokenization_worker.messages.counts import counted
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import Disagreement, create_record
from tokenization_worker.output.index import Index, is_proven, read_index
from tokenization_worker.output.last_failure import forget_failure, recording_failure
from tokenization_worker.output.ledger.epochs import REFERENCE, Epoch, current_epoch, find_epoch, start_epoch
from tokenization_worker.output.ledger.ledger import Ledger, read_ledger
from tokenization_worker.output.ledger.version_samples import keep_samples, require_same_versions
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.output.scratch import remove_scratch
from tokenization_worker.output.shard_check import find_changed_shards, find_damaged_shards
from tokenization_worker.output.tables import require_tables
from tokenization_worker.output.versions import describe_versions, find_changes, without_pyarrow
from tokenization_worker.pipelines.tokenize.commit import commit
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.decoder_affinity import stretches
from tokenization_worker.pipelines.tokenize.pipeline import Work, do_missing_work
from tokenization_worker.pipelines.tokenize.ranges.tokenizer_check import require_same_tokenizer
from tokenization_worker.planning.check_events import telling_of_check, telling_of_record
from tokenization_worker.planning.estimate import SAMPLED_BYTES
from tokenization_worker.planning.prepare import (
    Prepared,
    make_plan_of,
    require_room,
    require_shards,
)
from tokenization_worker.processes import default_processes
from tokenization_worker.readers.document_batch import FileOutcome
from tokenization_worker.run.healing import discard_damaged_lists, discard_damaged_records, redoes_receipts
from tokenization_worker.run.output_state import (
    prepare_at,
    probe_output,
    read_plan,
    refuse_foreign_files,
    refuse_links,
    refuse_nested_output,
    require_own_index,
    require_own_plan,
    write_plan,
)
from tokenization_worker.run.repair import discard_other_receipts, explain_disagreement, plan_repair
from tokenization_worker.run.rot import find_rot
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.storage.open import open_store, scheme_of
from tokenization_worker.tokenizers.checks.engine_check import EngineWanted, choose_engine, engine_by_name
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


ExecutorFactory = Callable[[Prepared, RunContext], Executor]


def run_job(
    job: TokenizationJob,
    *positional: Never,
    options: Options | None = None,
    executor: ExecutorFactory | None = None,
    on_progress: Watcher = ignore,
    should_stop: Callable[[], bool] = lambda: False,
) -> Finished:
    """Run `job` to its index, or prove that it is there.

    Raises the classes of `errors`, and `engine.dispatch.Stopped` after `should_stop` returned true. Whatever happens,
    what is done stays done: call again with the same job.
    """
    require_job("run_job", job)
    if positional:
        found = f"run_job takes a job, and the rest by keyword; found {positional[0]!r} without one"
        raise SpecError("SpecInvalid", found, next_step="write run_job(job, options=Options(processes=...))")
    require_instance("options", options, Options)
    require_function("on_progress", on_progress, "on_progress(event)")
    require_function("should_stop", should_stop, "should_stop() -> bool")
    require_main_guard("run_job")
    options = options or Options()
    store = open_store(resolve_data(job).output.uri)
    index = read_index(store)
    if index is not None and is_proven(store, index, run_key(job)):
        remove_scratch(store)
        return _finished(store, index, already=True)

    with recording_failure(store, lambda: _is_planned(store, job)), ExitStack() as life:
        prepared = prepare_at(store, job, on_progress)
        try:
            return _run(store, index, prepared, options, executor, on_progress, should_stop, life)
        except DataError as error:
            raise _with_hint(error, prepared) from error


def _with_hint(error: DataError, prepared: Prepared) -> DataError:
    """The error with what the plan knows of the cause of unusable documents, as `plan` tells it."""
    if error.reason != "QuarantineExceeded" or not prepared.hint:
        return error
    return DataError("QuarantineExceeded", error.message, next_step=f"{prepared.hint}; {error.next_step}")


def _is_planned(store: Store, job: TokenizationJob) -> bool:
    """Whether the unfinished run that is there is one of this job."""
    plan = read_plan(store)
    return plan is not None and plan.run_key == run_key(job)


def _run(
    store: Store,
    index: Index | None,
    prepared: Prepared,
    options: Options,
    executor: ExecutorFactory | None,
    on_progress: Watcher,
    should_stop: Callable[[], bool],
    life: ExitStack,
) -> Finished:
    """Everything after the plan phase's look at the source.

    `life`: shows that this run goes on from before the ledger is read: `tokjob clean` must not delete what was counted.
    """
    if (foreseen := prepared.foreseen) and index is None and prepared.stored_bytes > SAMPLED_BYTES:
        # The run is let: its end lists all that is unusable. A smaller one gets there in a moment.
        on_progress(Warned(f"this run will end with {foreseen.reason}: {foreseen.message}"))
    repair = None
    if index is None:
        refuse_links(store, prepared)
    else:
        require_own_index(store, index, prepared)
        require_tables(store, index)
        repair = plan_repair(store, index, prepared.tokenizer, on_progress, has_parquet=prepared.may_have_parquet)
    plan, is_new = _fix_plan(store, index, prepared, options, on_progress)
    if index is None:
        life.enter_context(store.showing_life())
    if index is None and not is_new:
        forget_failure(store)
    epoch = _fix_epoch(store, index, prepared, options, on_progress)
    context = _context(prepared, plan, epoch, options, epoch.versions if repair is None else repair.versions)
    ledger = read_ledger(store, plan, epoch.number)
    discard_damaged_records(store, ledger, on_progress)
    damaged = _find_damaged(store, ledger, on_progress) if repair is None else frozenset(repair.expected)
    if index is None:
        encodes = bool(damaged) or len(ledger.ranges) < plan.n_ranges
    else:
        encodes = bool(damaged) or redoes_receipts(ledger, plan.n_ranges)
    if encodes:
        require_same_tokenizer(store, context, prepared.tokenizer, on_progress)
    if repair is not None and damaged:
        discard_other_receipts(store, epoch.number, ledger, repair)
    if index is None and ledger.ranges and not context.versions:
        on_progress(Warned(_unknown_versions(prepared)))
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
            is_checked=epoch.engine != REFERENCE and prepared.tokenizer.is_engine_checked,
        )
    )
    if ledger.ranges:
        done = tuple(stretches(sorted(ledger.ranges)))
        on_progress(Resumed(len(ledger.ranges), done, plan.n_ranges, len(ledger.shards)))

    expected = {} if repair is None else repair.expected
    work = Work(store, plan, context, ledger, prepared.limits, damaged, _expansion(prepared), expected)
    start = executor or _local(options)

    def do_work(what: Work) -> None:
        try:
            do_missing_work(what, lambda: start(prepared, context), on_progress, should_stop)
        except Disagreement as error:
            now, ranges = describe_versions(prepared.tokenizer.libraries), ledger.ranges.values()
            changed = explain_disagreement(store.uri, repair, context.versions, now, ranges, error)
            if changed is None:
                raise
            raise changed from error

    has_work = index is None or encodes
    earlier = [receipt for name, receipt in ledger.shards.items() if name not in damaged]
    if has_work:
        if index is not None:
            life.enter_context(store.showing_life())
        do_work(work)
    if index is None:
        rotten = find_rot(store, earlier, on_progress, should_stop)
        if rotten:
            do_work(replace(work, damaged=rotten))
            damaged |= rotten
        on_progress(Committing(len(ledger.shards)))
        index = _commit(work, prepared, do_work, on_progress)
    else:
        _require_repaired(store, damaged)
    life.close()
    if index["run"]["runKey"] != prepared.run_key:
        create_record(store, layout.rerun_path(prepared.run_key), {"runKey": prepared.run_key})
    remove_scratch(store)
    return _finished(store, index, already=False, rebuilt=len(damaged), prepared=prepared)


def _fix_plan(
    store: Store, index: Index | None, prepared: Prepared, options: Options, watch: Watcher
) -> tuple[Plan, bool]:
    """The plan that counts: the one that is there, or a new one. Also whether it is ours.

    A dataset of this data without a plan was moved: its shards are no foreign files.
    """
    plan = read_plan(store)
    if plan is None:
        if index is None:
            refuse_nested_output(store)
            refuse_foreign_files(store, prepared)
            require_room(store, prepared.estimate, watch)
            require_shards(prepared)
        _probe(store)
        mine = make_plan_of(prepared, options.processes or options.count_processes())
        plan = write_plan(store, mine)
        if plan is mine:
            return plan, True
    _require_same_fingerprint(store, plan, prepared)
    require_own_plan(store, plan, prepared, watch)
    _probe(store)
    return plan.as_listed(prepared.files), False


def _require_same_fingerprint(store: Store, plan: Plan, prepared: Prepared) -> None:
    """Name the libraries, where the same job has another fingerprint because of them."""
    if plan.run_key != prepared.run_key or plan.data["tokenizer"] == prepared.canonical["tokenizer"]:
        return
    with suppress(NotFound):
        require_same_versions(store.uri, current_epoch(store).versions, prepared.tokenizer)


def _probe(store: Store) -> None:
    """Refuse an output that cannot be written or tidied; on local disks the plan itself, written first, tells."""
    if store.local_path("") is None:
        probe_output(store)


def _fix_epoch(store: Store, index: Index | None, prepared: Prepared, options: Options, watch: Watcher) -> Epoch:
    """The current epoch; the first start chooses the engine for all of them.

    An engine that was voided when a moved dataset was made is not tried again.
    """
    epoch = find_epoch(store) if index is None else _epoch_of_dataset(store)
    if epoch is None:
        was_voided = index is not None and index["run"].get("epochs")
        engine: EngineWanted = "reference" if was_voided else options.engine
        tokenizer = prepared.tokenizer
        choice = choose_engine(tokenizer, engine, prepared.estimate.source_bytes, telling_of_check(watch))
        samples = keep_samples(
            store,
            tokenizer,
            prepared.sampled_texts,
            prepared.data.tokenizer.revision,
            telling_of_record(tokenizer, watch),
            has_parquet=prepared.has_parquet,
        )
        return start_epoch(store, choice.name, samples.versions)
    wanted = prepared.tokenizer.reference.name if options.engine == REFERENCE else options.engine
    if wanted not in ("auto", epoch.engine):
        watch(Warned(f"engine {options.engine} is not used: this run began with {epoch.engine}, and a run has one"))
    return epoch


def _epoch_of_dataset(store: Store) -> Epoch | None:
    """A dataset may have been moved without its epochs, and with receipts of a repair."""
    with suppress(NotFound):
        return current_epoch(store)
    return None


def _unknown_versions(prepared: Prepared) -> str:
    return (
        "an older version of this program began this run and did not record the versions of its libraries, so they "
        f"cannot be compared with those here: {describe_versions(prepared.tokenizer.libraries)}; if they may differ, "
        "start a new run at another output.uri"
    )


def _find_damaged(store: Store, ledger: Ledger, watch: Watcher) -> frozenset[tuple[str, int]]:
    """Shards of an unfinished run that were deleted or changed since they were written; `watch` is told."""
    changed = find_changed_shards(store, ledger.shards.values())
    if changed:
        first = min(changed, key=lambda shard: (shard.split, shard.index))
        watch(
            Warned(
                f"{counted(len(changed), 'shard')} deleted or changed since an earlier start wrote them, the first: "
                f"{store.uri}/{first.path}. They are written again now; check the disk, and which program writes there"
            )
        )
    return frozenset((shard.split, shard.index) for shard in changed)


def _commit(work: Work, prepared: Prepared, do_work: Callable[[Work], None], watch: Watcher) -> Index:
    """Write the index; ranges whose list of unusable documents turns out damaged are done again before that."""

    def write() -> Index:
        return commit(work.store, work.plan, work.context, work.ledger, prepared.tokenizer, prepared.limits, watch)

    try:
        return write()
    except DataError as error:
        if error.reason != "QuarantineCorrupt":
            raise
        work.ledger.set_lost_lists(discard_damaged_lists(work.store, work.context.epoch, work.ledger, watch))
        do_work(replace(work, damaged=frozenset()))  # those were written again before
        return write()


def _require_repaired(store: Store, damaged: frozenset[tuple[str, int]]) -> None:
    """Raise `Disagreement` where shards that were written again are still not what the dataset's table says."""
    left = sorted(find_damaged_shards(store, among=damaged)) if damaged else []
    if left:
        split, number = left[0]
        raise Disagreement(
            "NotDeterministic",
            f"{store.uri}: shard {number} of split {split} was written again and differs from {layout.SHARDS_TABLE} "
            f"({counted(len(left), 'such shard')})",
            next_step="start the same command again; if it stays so, please report it with the index",
        )


def _expansion(prepared: Prepared) -> float:
    """Source bytes that a stored byte is expected to be; 0 where the sample did not tell."""
    return (prepared.estimate.source_bytes or 0) / max(1, prepared.stored_bytes)


def _context(prepared: Prepared, plan: Plan, epoch: Epoch, options: Options, versions: str) -> RunContext:
    return RunContext(
        data=prepared.data,
        plan_id=plan.plan_id,
        epoch=epoch.number,
        engine=epoch.engine,
        dtype=prepared.dtype,
        sample_one_in=options.sample_one_in,
        fingerprint=prepared.tokenizer.fingerprint,
        versions=_versions_that_decide(prepared, versions),
    )


def _versions_that_decide(prepared: Prepared, versions: str) -> str:
    """`versions` to compare this process's with: without pyarrow's, if they differ and the source has no Parquet."""
    if not find_changes(versions, describe_versions(prepared.tokenizer.libraries)) or prepared.may_have_parquet:
        return versions
    return without_pyarrow(versions)


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
        read_bytes=index["run"].get("readBytes"),
        quarantined_bytes=index["run"].get("quarantinedBytes"),
        files_dropped=sum(files.values()) - files[FileOutcome.READ],
        tokens=index["tokens"],
        text_bytes=index["run"]["textBytes"],
        shards=sum(split["shards"] for split in index["splits"]),
        quarantine_limit=limit,
    )
