"""Prepares the work of a run: deletes corrupt records, compares the tokenizer, reports the plan."""

from __future__ import annotations

from dataclasses import dataclass

from tokenization_worker.events import Planned, Resumed, Warned, Watcher
from tokenization_worker.output.index import Index
from tokenization_worker.output.ledger.epochs import REFERENCE
from tokenization_worker.output.versions import describe_versions
from tokenization_worker.output.writers import planned_writers
from tokenization_worker.pipelines.decoder_affinity import stretches
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.ledger import TokenizeLedger
from tokenization_worker.pipelines.tokenize.pipeline import Work
from tokenization_worker.pipelines.tokenize.ranges.tokenizer_check import require_same_tokenizer
from tokenization_worker.planning.groups.counts import plan_groups
from tokenization_worker.planning.prepare import Prepared
from tokenization_worker.run.discard import discard_corrupt_records
from tokenization_worker.run.repair import Repair, discard_other_receipts
from tokenization_worker.run.run_plan import RunPlan
from tokenization_worker.storage.base import Store


@dataclass(frozen=True, slots=True)
class Begun:
    """A run whose work may begin. `encodes`: documents are tokenized, or shards built."""

    store: Store
    index: Index | None
    prepared: Prepared
    context: RunContext
    ledger: TokenizeLedger
    repair: Repair | None
    work: Work
    encodes: bool


def begin_run(found: RunPlan, sample_one_in: int, watch: Watcher) -> Begun:
    """Make ready what `plan_run` has found and written.

    Raises where this process's libraries, or its engine, give other tokens than the run's.
    """
    store, prepared, ledger, repair, epoch = found.store, found.prepared, found.ledger, found.repair, found.epoch
    assert epoch is not None, "a run that writes has one"
    context = RunContext(
        data=prepared.data,
        plan_id=found.plan.plan_id,
        epoch=epoch.number,
        engine=epoch.engine,
        dtype=prepared.dtype,
        sample_one_in=sample_one_in,
        fingerprint=prepared.tokenizer.fingerprint,
        versions=found.versions_that_decide,
        pad_id=prepared.pad_id,
        writers=tuple(planned_writers(found.plan.data).items()),
        n_cells=0 if found.plan.scattering is None else found.plan.scattering.n_cells,
    )
    discard_corrupt_records(store, ledger.corrupt, watch)
    encodes = found.encodes
    if encodes:
        require_same_tokenizer(store, context, prepared.tokenizer, watch)
    if repair is not None and found.mismatched:
        discard_other_receipts(store, epoch.number, ledger, repair)
    if found.index is None and ledger.ranges and not context.versions:
        watch(Warned(_unknown_versions(prepared)))
    _report_progress(found, watch)
    expected = {} if repair is None else repair.expected
    work = Work(store, found.plan, context, ledger, prepared.limits, found.mismatched, _expansion(prepared), expected)
    return Begun(store, found.index, prepared, context, ledger, repair, work, encodes)


def _report_progress(found: RunPlan, watch: Watcher) -> None:
    prepared, ledger, plan = found.prepared, found.ledger, found.plan
    shuffle = prepared.data.output.shuffle
    watch(
        Planned(
            files=len(plan.files),
            stored_bytes=prepared.stored_bytes,
            ranges=plan.n_ranges,
            estimated_tokens=prepared.estimate.tokens,
            core_seconds=prepared.estimate.core_seconds(found.engine),
            tokenizer=prepared.tokenizer.name,
            engine=found.engine,
            is_accelerated=found.engine not in (REFERENCE, prepared.tokenizer.reference.name),
            adopted=not found.is_new,
            is_checked=found.engine != REFERENCE and prepared.tokenizer.is_engine_checked,
            groups=plan_groups(prepared.data, plan.files, prepared.estimate.groups),
            shuffle="" if shuffle is None else shuffle.words,
        )
    )
    if ledger.ranges:
        done = tuple(stretches(sorted(ledger.ranges)))
        watch(Resumed(len(ledger.ranges), done, plan.n_ranges, len(ledger.shards)))


def _expansion(prepared: Prepared) -> float:
    """Source bytes that a stored byte is expected to be; 0 where the sample did not tell."""
    return (prepared.estimate.source_bytes or 0) / max(1, prepared.stored_bytes)


def _unknown_versions(prepared: Prepared) -> str:
    return (
        "an older version of this program began this run and did not record its library versions, so tokjob cannot "
        f"compare them with the installed ones: {describe_versions(prepared.tokenizer.libraries)}; if they may differ, "
        "start a new run at another output.uri"
    )
