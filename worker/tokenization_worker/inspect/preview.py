"""Previews a run: `tokjob plan`, and `make_plan` of the Python API."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice

from tokenization_worker.api.arguments import require_function, require_job, require_processes
from tokenization_worker.api.data import Delimiters, DType
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.errors import ChangedError, TokenizationError
from tokenization_worker.events import GroupPlan, Warned, Watcher, ignore
from tokenization_worker.formats.dtypes import NUMPY_DTYPES
from tokenization_worker.output.index import Index
from tokenization_worker.output.last_failure import read_failure
from tokenization_worker.output.ledger.version_samples import describe_others, require_same_tokens
from tokenization_worker.output.naming import planned_streams
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.planning.estimated_plan import EstimatedPlan, with_estimate
from tokenization_worker.planning.groups.counts import plan_groups
from tokenization_worker.planning.make_plan import make_plan_of
from tokenization_worker.planning.prepare import Prepared, prepare
from tokenization_worker.planning.row_estimate import RowEstimate, count_shards
from tokenization_worker.planning.scattering import held_bytes, window_tokens
from tokenization_worker.planning.source_check import count_formats
from tokenization_worker.processes import default_processes
from tokenization_worker.run.observe import observe_output
from tokenization_worker.run.output_state import OutputState, Standing, Wanted, dataset_difference, describe_touched
from tokenization_worker.run.planned_source import prepare_as_planned
from tokenization_worker.run.run_plan import CompleteRun, RunPlan, plan_run
from tokenization_worker.storage.base import Store
from tokenization_worker.storage.open import open_store
from tokenization_worker.storage.source_file import SourceFile
from tokenization_worker.tokenizers.checks.engine_check import choose_engine

START_SECONDS = 0.7
"""A whole run on a 1 MB file (2026-11-21)."""


@dataclass(frozen=True, slots=True)
class ShufflePreview:
    """How a run shuffles. `words`: what, and by which seed. `windows`: of all streams together; `window_bytes`: of the
    tokens in one; `cells`: of each scattered object; `slot_bytes`: what a worker holds of a window, or of two cells, at
    most.
    """

    words: str
    windows: int
    window_bytes: int
    cells: int
    slot_bytes: int


@dataclass(frozen=True, slots=True)
class Preview:
    """What a run would do. Token counts are scaled from a sample of the source; None where it holds no text.

    Of an unfinished run: the files and ranges of its plan, its engine, and the time for the ranges that are not done.
    Of a complete one: what the dataset has; None for what neither index nor plan say. `formats`: suffix, number of
    files and the first names, the most frequent suffix first. `groups`: those of the source. `shard_bytes`: in all
    `output_formats`; `scratch_bytes`: needed beside them for a while. `rows`: None where the tokens are one run.
    `shuffle`: None where the source's order stays, or the dataset is complete. `padding`: the token that fills rows, by
    its id and, unless the dataset is complete, its name; "" where there are no rows.
    """

    files: int
    stored_bytes: int | None
    source_bytes: int | None
    sampled_bytes: int
    tokens: int | None
    bytes_per_token: float | None
    tokenizer: str
    ranges: int
    ranges_done: int
    largest_range: int
    largest_files: tuple[tuple[str, int], ...]
    formats: tuple[tuple[str, int, tuple[str, ...]], ...]
    output: str
    output_formats: tuple[str, ...]
    delimiters: Delimiters
    dtype: str
    shards: int | None
    rows: RowEstimate | None
    shard_bytes: int | None
    scratch_bytes: int | None
    free_bytes: int | None
    engine: str
    engine_reason: str
    decoding: str
    processes: int
    seconds: float | None
    there: str
    is_complete: bool = False
    groups: tuple[GroupPlan, ...] = ()
    shuffle: ShufflePreview | None = None
    padding: str = ""


def make_plan(job: TokenizationJob, processes: int | None = None, *, on_progress: Watcher = ignore) -> EstimatedPlan:
    """The plan that a new run of `job` would write, with the tokens and the time to expect; does not look at the
    output.

    Raises what such a run would end with because of its source or tokenizer; `on_progress` is told what is only likely.
    Chooses the engine as a run does, which may check it: some seconds, once on a machine.
    """
    require_processes(processes)
    require_job("make_plan", job)
    require_function("on_progress", on_progress, "on_progress(event)")
    prepared = prepare(job, on_progress)
    if (error := prepared.strange or prepared.foreseen) is not None:
        raise error
    slots = processes or default_processes()
    choice = choose_engine(prepared.tokenizer, "auto", prepared.estimate.source_bytes or prepared.stored_bytes)
    return with_estimate(
        make_plan_of(prepared, slots), prepared, engine=choice.name, processes=slots, start_seconds=START_SECONDS
    )


def preview_run(job: TokenizationJob, processes: int | None = None, watch: Watcher = ignore) -> Preview:
    """Everything the plan phase can tell or refuse; raises what `run_job` would raise before it works."""
    store = open_store(resolve_data(job).output.uri)
    slots = processes or default_processes()
    found = plan_run(store, job, "auto", lambda: slots, watch)
    if isinstance(found, CompleteRun):
        return _of_complete(found, job, slots, watch)
    foreseen = found.prepared.foreseen
    if foreseen is not None and found.standing is Standing.NEW:
        raise foreseen
    if foreseen is not None and found.standing is Standing.UNFINISHED:  # what has been done is there to be looked at
        watch(Warned(f"this run would end with {foreseen.reason}: {foreseen.message}"))
    _require_same_tokens(found, watch)
    return _of_plan(found, slots)


def _require_same_tokens(found: RunPlan, watch: Watcher) -> None:
    """Raise where this process's libraries give other tokens than those of the run that would be resumed."""
    if found.epoch is not None and found.index is None and found.encodes:
        versions = found.versions_that_decide
        others = require_same_tokens(found.store.uri, found.plan.plan_id, found.prepared.tokenizer, versions)
        if others is not None:
            watch(Warned(describe_others(others)))


def _of_plan(found: RunPlan, slots: int) -> Preview:
    prepared, plan, estimate = found.prepared, found.plan, found.prepared.estimate
    stored_bytes = sum(file.size for file in plan.files)
    # a run that goes on leaves out what came after its plan: the estimate is of all that is listed now
    share = stored_bytes / prepared.stored_bytes if prepared.stored_bytes else 1.0
    core_seconds = estimate.core_seconds(found.engine)
    tokens = _scaled(estimate.tokens, share)
    rows = None if estimate.rows is None else _scaled_rows(estimate.rows, share)
    stored = tokens if rows is None else rows.tokens
    failure = read_failure(found.store) if found.standing is Standing.UNFINISHED else None
    ended = "" if failure is None else f" (its last start ended with {failure.reason}: {failure.message})"
    return Preview(
        files=len(plan.files),
        stored_bytes=stored_bytes,
        source_bytes=_scaled(estimate.source_bytes, share),
        sampled_bytes=estimate.sampled_bytes,
        tokens=tokens,
        bytes_per_token=estimate.bytes_per_token,
        tokenizer=prepared.tokenizer.name,
        ranges=plan.n_ranges,
        ranges_done=len(found.ledger.ranges),
        largest_range=int(plan.cut.range_bytes.max(initial=0)),
        largest_files=_largest(plan.files),
        formats=tuple(count_formats(plan.files)),
        output=found.store.uri,
        output_formats=tuple(prepared.data.output.formats),
        delimiters=prepared.tokenizer.delimiters,
        dtype=prepared.dtype,
        shards=None if tokens is None else count_shards(prepared.data.output, tokens, rows, estimate.parts),
        rows=rows,
        shard_bytes=_scaled(estimate.shard_bytes, share),
        scratch_bytes=_scaled(estimate.scratch_bytes, share),
        free_bytes=found.store.free_bytes(),
        engine=found.engine,
        engine_reason=found.engine_reason,
        decoding=prepared.tokenizer.normalises,
        processes=slots,
        seconds=None if core_seconds is None else START_SECONDS + core_seconds * share * found.share_left / slots,
        there=f"{found.standing}{ended}",
        groups=plan_groups(prepared.data, plan.files, estimate.groups),
        shuffle=_preview_shuffle(prepared, plan, stored),
        padding=_name_padding(prepared),
    )


def _name_padding(prepared: Prepared) -> str:
    """The id that fills rows, with its name if it is a special token."""
    if prepared.pad_id is None:
        return ""
    names = (name for name, number in prepared.tokenizer.special_tokens.items() if number == prepared.pad_id)
    return " ".join([str(prepared.pad_id), *islice(names, 1)])


def _preview_shuffle(prepared: Prepared, plan: Plan, tokens: int | None) -> ShufflePreview | None:
    """None where nothing is shuffled, or the number of tokens is unknown. `tokens`: with the padding of rows."""
    shuffle, scattering = prepared.data.output.shuffle, plan.scattering
    if shuffle is None or scattering is None or not tokens:
        return None
    window = window_tokens(prepared, scattering)
    return ShufflePreview(
        words=shuffle.words,
        windows=max(planned_streams(plan.data), -(-tokens // window)),
        window_bytes=min(window, tokens) * NUMPY_DTYPES[prepared.dtype].itemsize,
        cells=scattering.n_cells,
        slot_bytes=held_bytes(prepared, scattering, tokens),
    )


def _scaled_rows(rows: RowEstimate, share: float) -> RowEstimate:
    return replace(rows, count=round(rows.count * share), truncated=round(rows.truncated * share))


def _scaled(estimate: int | None, share: float) -> int | None:
    return None if estimate is None else round(estimate * share)


def _of_complete(found: CompleteRun, job: TokenizationJob, slots: int, watch: Watcher) -> Preview:
    """What the dataset has, and whether source or tokenizer are others since: the run would not look at them."""
    store, index = found.store, found.index
    state = observe_output(store)  # with the plan, if there is one that can be read
    plan, files = state.plan, () if state.plan is None else state.plan.files
    changed = _find_change(store, state, index, job, watch)
    tokens, text_bytes = index["tokens"], index["run"]["textBytes"]
    formats = tuple(index["data"]["output"]["formats"])
    rows = _rows_of(index)
    stored = tokens if rows is None else rows.tokens
    return Preview(
        files=sum(index["conservation"]["files"].values()),
        stored_bytes=None if plan is None else sum(file.size for file in files),
        source_bytes=index["run"].get("readBytes"),
        sampled_bytes=0,
        tokens=tokens,
        bytes_per_token=text_bytes / (tokens + index.get("truncatedTokens", 0)) if tokens else 0.0,
        tokenizer=index["tokenizer"]["name"],
        ranges=0 if plan is None else plan.n_ranges,
        ranges_done=0 if plan is None else plan.n_ranges,
        largest_range=0 if plan is None else int(plan.cut.range_bytes.max(initial=0)),
        largest_files=_largest(files),
        formats=tuple(count_formats(files)),
        output=store.uri,
        output_formats=formats,
        delimiters=Delimiters.from_json(index["data"]["tokenizer"]["delimiter"]),
        dtype=index["dtype"],
        shards=sum(split["shards"] for split in index["splits"]),
        rows=rows,
        shard_bytes=stored * NUMPY_DTYPES[DType(index["dtype"])].itemsize * len(formats),
        scratch_bytes=0,
        free_bytes=store.free_bytes(),
        engine=str(index["run"].get("engine", "")),
        engine_reason="the dataset was made with it",
        decoding="",
        processes=slots,
        seconds=0.0,
        there=f"{Standing.COMPLETE}{changed}",
        is_complete=True,
        groups=_groups_of(index, files),
        padding="" if rows is None else str(index["data"]["output"]["sequence"]["pad"]),
    )


def _groups_of(index: Index, files: tuple[SourceFile, ...]) -> tuple[GroupPlan, ...]:
    """The groups of a dataset; `files`: those of its plan, none where that is gone."""
    shares = {group["name"]: float(Fraction(group["share"])) for group in index["data"]["source"].get("groups", ())}
    return tuple(
        GroupPlan(
            name=group["name"],
            files=group["files"],
            stored_bytes=sum(file.size for file in files if file.group == group["name"]) if files else None,
            share=shares[group["name"]],
            tokens=group["tokens"],
        )
        for group in index.get("groups", ())
    )


def _rows_of(index: Index) -> RowEstimate | None:
    """The rows of a dataset; a document's tokens are its text and its delimiters. One that was cut off has no delimiter
    behind it, so the share of text is a little larger than is said here."""
    entries = [split["sequences"] for split in index["splits"] if "sequences" in split]
    count = sum(entry["rows"] for entry in entries)
    if not count:
        return None
    length = entries[0]["length"]
    delimiters = Delimiters.from_json(index["data"]["tokenizer"]["delimiter"])
    text = index["tokens"] - len(delimiters.ids) * index["conservation"]["written"]
    return RowEstimate(length, count, text / (count * length), index.get("truncatedTokens", 0))


def _without_assertion(job: TokenizationJob) -> TokenizationJob:
    """The job with whatever tokenizer is there: the dataset has the one that the job asserts."""
    tokenizer = job.spec.tokenizer.model_copy(update={"fingerprint": None})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"tokenizer": tokenizer})})


def _find_change(store: Store, state: OutputState, index: Index, job: TokenizationJob, watch: Watcher) -> str:
    """What changed since the run was complete, as the end of a sentence; `watch` is told what that means."""
    try:
        prepared = prepare_as_planned(store, _without_assertion(job), state.plan, state.index, watch)
        changed = dataset_difference(state, index, Wanted.of(prepared))
    except ChangedError as error:
        changed = error.message
    except TokenizationError as error:
        watch(
            Warned(
                f"tokjob cannot check whether the source or the tokenizer changed since then: {error.reason}: "
                f"{error.message}"
            )
        )
        return ""
    if changed is None:
        for warning in () if state.plan is None else describe_touched(state.plan, prepared.files):
            watch(Warned(warning))
        return ""
    watch(
        Warned(
            f"the source or the tokenizer changed after this run was complete: {changed}. The dataset holds the "
            "earlier content; to tokenize the source as it is now, write to another output.uri, or set a new "
            "rerunToken where output.uri holds {rerunToken}"
        )
    )
    return f"; changed since: {changed}"


def _largest(files: tuple[SourceFile, ...]) -> tuple[tuple[str, int], ...]:
    return tuple((file.uri, file.size) for file in sorted(files, key=lambda file: -file.size)[:3])
