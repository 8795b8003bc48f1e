"""The plan of a start, as a value: plan and epoch, finished work, and the work left.

`plan_run` is what `tokjob plan`, the plan Pod of a run on Kubernetes and `run_job` call. For the first it writes
nothing. For the others it also writes what is decided: the plan, create-only, and its first epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.events import Warned, Watcher
from tokenization_worker.messages.counts import counted
from tokenization_worker.output import layout
from tokenization_worker.output.index import Index
from tokenization_worker.output.last_failure import forget_failure
from tokenization_worker.output.layout import ShardKey
from tokenization_worker.output.ledger.epochs import REFERENCE, Epoch, start_epoch
from tokenization_worker.output.ledger.version_samples import keep_samples
from tokenization_worker.output.plan_file import Plan, write_plan
from tokenization_worker.output.shard_check import find_changed_shards
from tokenization_worker.output.versions import describe_versions, find_changes, without_pyarrow
from tokenization_worker.pipelines.tokenize.ledger import TokenizeLedger, read_tokenize_ledger
from tokenization_worker.planning.check_events import reporting_check, reporting_record
from tokenization_worker.planning.make_plan import make_plan_of
from tokenization_worker.planning.output_check import require_room, require_shards
from tokenization_worker.planning.prepare import Prepared
from tokenization_worker.planning.sampled_files import SAMPLED_BYTES
from tokenization_worker.run.discard import lacks_only_corrupt_receipts
from tokenization_worker.run.observe import judge_now, observe_output, read_epoch
from tokenization_worker.run.output_state import OutputState, Standing, Wanted, judge
from tokenization_worker.run.planned_source import prepare_as_planned
from tokenization_worker.run.repair import Repair, plan_repair
from tokenization_worker.run.write_check import check_writable, check_writable_leaving_nothing
from tokenization_worker.storage.base import Store
from tokenization_worker.tokenizers.checks.engine_check import EngineWanted, choose_engine


@dataclass(frozen=True, slots=True)
class CompleteRun:
    """There is nothing to do: the dataset of this run is there. Neither source nor plan were looked at."""

    store: Store
    index: Index


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run does, and what of it is done.

    `index`: of a complete dataset of another run, which this one verifies. `plan`: the adopted one, or a new one
    (`is_new`). `epoch`: None where it is not written yet; `engine`: the epoch's, or the one that it will have.
    `mismatched`: shards (split, index) that are not what their receipts, or the dataset's table, say; only for a run
    that writes, as is `repair`.
    """

    store: Store
    standing: Standing
    index: Index | None
    prepared: Prepared
    plan: Plan
    is_new: bool
    epoch: Epoch | None
    engine: str
    engine_reason: str
    ledger: TokenizeLedger
    mismatched: frozenset[ShardKey] = frozenset()
    repair: Repair | None = None

    @property
    def ranges_left(self) -> int:
        return self.plan.n_ranges - len(self.ledger.ranges)

    @property
    def share_left(self) -> float:
        """Of the stored bytes, those in ranges that are not done."""
        sizes = self.plan.cut.range_bytes
        total = int(sizes.sum())
        done = sum(int(sizes[number]) for number in self.ledger.ranges)
        return (total - done) / total if total else 1.0

    @property
    def encodes(self) -> bool:
        """Whether documents are tokenized, or shards built from them."""
        if self.index is None:
            return bool(self.mismatched) or self.ranges_left > 0
        return bool(self.mismatched) or lacks_only_corrupt_receipts(self.ledger, self.plan.n_ranges)

    @property
    def versions(self) -> str:
        """Of the libraries whose tokens the run has; "" where they are not known."""
        if self.repair is not None:
            return self.repair.versions
        return "" if self.epoch is None else self.epoch.versions

    @property
    def versions_that_decide(self) -> str:
        """`versions` to compare with this process's: without pyarrow's, if they differ and nothing is Parquet."""
        now = describe_versions(self.prepared.tokenizer.libraries)
        if not find_changes(self.versions, now) or self.prepared.may_have_parquet:
            return self.versions
        return without_pyarrow(self.versions)


def plan_run(
    store: Store,
    job: TokenizationJob,
    engine: EngineWanted,
    count_slots: Callable[[], int],
    watch: Watcher,
    life: ExitStack | None = None,
) -> RunPlan | CompleteRun:
    """Decide what a run of `job` does at `store`; raises what such a run is refused with.

    `count_slots`: asked where a new plan is cut. `life`: where this start shows that it goes on, from before it reads
    the ledger: `tokjob clean` must not delete what was counted. None: nothing is written, and no shard is read.
    """
    state = observe_output(store, job)
    verdict = judge(state, Wanted.of_job(job))
    verdict.require()
    if verdict.standing is Standing.COMPLETE and state.index is not None:
        return CompleteRun(store, state.index)
    prepared = prepare_as_planned(store, job, state.plan, state.index, watch)
    verdict = judge_now(store, state, Wanted.of(prepared))
    verdict.require()
    writes = life is not None
    if writes and state.index is None:
        _warn_of_the_end(prepared, watch)
    repair = None
    if writes and state.index is not None:
        has_parquet = prepared.may_have_parquet
        repair = plan_repair(store, state.index, prepared.tokenizer, watch, has_parquet=has_parquet)
    plan, is_new = _choose_plan(store, state, prepared, count_slots, watch, writes=writes)
    if life is not None and state.index is None:
        life.enter_context(store.showing_life())
        if not is_new:
            forget_failure(store)
    epoch, chosen, reason = _choose_epoch(store, state, prepared, engine, watch, writes=writes)
    ledger = read_tokenize_ledger(store, plan, 0 if epoch is None else epoch.number)
    mismatched: frozenset[ShardKey] = frozenset()
    if repair is not None:
        mismatched = frozenset(repair.expected)
    elif writes:
        mismatched = _find_mismatched(store, ledger, watch)
    standing = Standing.UNFINISHED if state.index is None and not is_new else verdict.standing
    return RunPlan(
        store, standing, state.index, prepared, plan, is_new, epoch, chosen, reason, ledger, mismatched, repair
    )


def _warn_of_the_end(prepared: Prepared, watch: Watcher) -> None:
    """Do not refuse the run: it lists every unusable document. A small run fails quickly, without this warning."""
    if (foreseen := prepared.foreseen) and prepared.stored_bytes > SAMPLED_BYTES:
        watch(Warned(f"this run will end with {foreseen.reason}: {foreseen.message}"))


def _choose_plan(
    store: Store,
    state: OutputState,
    prepared: Prepared,
    count_slots: Callable[[], int],
    watch: Watcher,
    *,
    writes: bool,
) -> tuple[Plan, bool]:
    """The plan that counts: the one that is there, or a new one. Also whether it is this start's.

    A dataset of this data without a plan was moved: its shards are no foreign files.
    """
    if state.plan is None and state.index is None:
        require_room(store, prepared.estimate, watch)
        require_shards(prepared)
    if not writes:
        check_writable_leaving_nothing(store)
    elif store.local_path("") is None:  # on a local disk the plan itself, written first, tells
        check_writable(store)
    plan = state.plan
    if plan is None:
        mine = make_plan_of(prepared, count_slots())
        if not writes:
            return mine, True
        plan = write_plan(store, mine)
        if plan is mine:
            return plan, True
    elif writes and not _is_same_plan(store, state):  # `tokjob clean` removed it while the source was listed
        plan = write_plan(store, plan)
    if plan is not state.plan:  # another start wrote this one meanwhile, and perhaps its epoch
        state = replace(observe_output(store, prepared.job), plan=plan)
    verdict = judge_now(store, state, Wanted.of(prepared))
    verdict.require()
    for warning in verdict.warnings:
        watch(Warned(warning))
    return plan.as_listed(prepared.files), False


def _is_same_plan(store: Store, state: OutputState) -> bool:
    found = store.stat(layout.PLAN)
    return found is not None and found.version == state.plan_version


def _choose_epoch(
    store: Store, state: OutputState, prepared: Prepared, engine: EngineWanted, watch: Watcher, *, writes: bool
) -> tuple[Epoch | None, str, str]:
    """The current epoch, its engine, and why; the first start chooses the engine for all of them.

    An engine that was voided when a moved dataset was made is not tried again.
    """
    epoch = read_epoch(store, state.index) if writes else state.epoch  # another start may have written it meanwhile
    tokenizer = prepared.tokenizer
    if epoch is not None:
        wanted = tokenizer.reference.name if engine == REFERENCE else engine
        if wanted not in ("auto", epoch.engine):
            watch(Warned(f"engine {engine} is not used: this run began with {epoch.engine}, and a run uses only one"))
        return epoch, epoch.engine, "this run began with it"
    was_voided = state.index is not None and state.index["run"].get("epochs")
    choice = choose_engine(
        tokenizer, "reference" if was_voided else engine, prepared.estimate.source_bytes, reporting_check(watch)
    )
    if not writes:
        return None, choice.name, choice.reason
    samples = keep_samples(
        store,
        tokenizer,
        prepared.sampled_texts,
        prepared.data.tokenizer.revision,
        reporting_record(tokenizer, watch),
        has_parquet=prepared.has_parquet,
    )
    epoch = start_epoch(store, choice.name, samples.versions)
    return epoch, epoch.engine, choice.reason


def _find_mismatched(store: Store, ledger: TokenizeLedger, watch: Watcher) -> frozenset[ShardKey]:
    """Shards of an unfinished run that were deleted or changed since they were written; `watch` is told."""
    changed = find_changed_shards(store, ledger.shards.values())
    if changed:
        first = min(changed, key=lambda shard: shard.key)
        watch(
            Warned(
                f"{counted(len(changed), 'shard')} deleted or changed since an earlier start wrote them, the first: "
                f"{store.uri}/{first.path}. This run writes them again now; check the disk, and check which other "
                "program writes there"
            )
        )
    return frozenset(shard.key for shard in changed)
