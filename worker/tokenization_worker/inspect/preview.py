"""Looking without running: what a run would do, how far one is, and removing an unfinished one."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from tokenization_worker.api.arguments import require_function, require_job, require_processes
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.errors import ChangedError, DataError
from tokenization_worker.events import Warned, Watcher, ignore
from tokenization_worker.messages.commands import tokjob
from tokenization_worker.messages.counts import counted
from tokenization_worker.output import layout
from tokenization_worker.output.index import (
    Index,
    foreign_content,
    is_proven,
    near_folder,
    not_an_output,
    read_index,
    read_own_index,
)
from tokenization_worker.output.last_failure import read_failure
from tokenization_worker.output.ledger.epochs import current_epoch
from tokenization_worker.output.ledger.ledger import read_ledger
from tokenization_worker.output.own_files import Sorted, sort_own, sort_shards
from tokenization_worker.output.plan_file import read_naming
from tokenization_worker.output.shard_check import find_missing
from tokenization_worker.planning.check_events import telling_of_check
from tokenization_worker.planning.estimated_plan import EstimatedPlan, with_estimate
from tokenization_worker.planning.prepare import Prepared, make_plan_of, prepare, require_room, require_shards
from tokenization_worker.planning.source_check import count_formats
from tokenization_worker.processes import default_processes
from tokenization_worker.run.output_state import (
    difference_from_index,
    prepare_at,
    probe_output,
    read_plan,
    refuse_foreign_files,
    refuse_links,
    refuse_nested_output,
    require_own_index,
    require_own_plan,
    warn_of_touched,
)
from tokenization_worker.storage.base import Entry, NotFound, Store
from tokenization_worker.storage.heartbeat import DEAD_AFTER_S
from tokenization_worker.storage.listing import delete_all
from tokenization_worker.storage.local.folders import remove_empty_folders
from tokenization_worker.storage.local.store import map_os_errors
from tokenization_worker.storage.open import open_store, plain_path, scheme_of
from tokenization_worker.tokenizers.checks.engine_check import choose_engine

START_SECONDS = 0.7
"""A whole run on a 1 MB file (2026-11-21)."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a run would do. Token counts are scaled from a sample of the source; None where it holds no text.

    `formats`: suffix, number of files and the first names, the most frequent suffix first.
    """

    files: int
    stored_bytes: int
    source_bytes: int
    sampled_bytes: int
    tokens: int | None
    bytes_per_token: float | None
    tokenizer: str
    ranges: int
    largest_range: int
    largest_files: tuple[tuple[str, int], ...]
    formats: tuple[tuple[str, int, tuple[str, ...]], ...]
    output: str
    dtype: str
    shards: int | None
    shard_bytes: int | None
    free_bytes: int | None
    engine: str
    engine_reason: str
    decoding: str
    processes: int
    seconds: float | None
    there: str


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


def look_ahead(job: TokenizationJob, processes: int | None = None, watch: Watcher = ignore) -> Outlook:
    """Everything the plan phase can tell or refuse; raises what `run_job` would raise before it works."""
    store = open_store(resolve_data(job).output.uri)
    prepared = prepare_at(store, job, watch)
    refuse_links(store, prepared)
    there = _what_is_there(store, prepared, watch)
    slots = processes or default_processes()
    plan = make_plan_of(prepared, slots)
    estimate = prepared.estimate
    choice = choose_engine(prepared.tokenizer, "auto", estimate.source_bytes, telling_of_check(watch))
    core_seconds = estimate.core_seconds(choice.name)
    largest = sorted(prepared.files, key=lambda file: -file.size)[:3]
    return Outlook(
        files=len(prepared.files),
        stored_bytes=prepared.stored_bytes,
        source_bytes=estimate.source_bytes,
        sampled_bytes=estimate.sampled_bytes,
        tokens=estimate.tokens,
        bytes_per_token=estimate.bytes_per_token,
        tokenizer=prepared.tokenizer.name,
        ranges=plan.n_ranges,
        largest_range=int(plan.cut.range_bytes.max(initial=0)),
        largest_files=tuple((file.uri, file.size) for file in largest),
        formats=tuple(count_formats(prepared.files)),
        output=store.uri,
        dtype=prepared.dtype,
        shards=None if estimate.tokens is None else -(-estimate.tokens // prepared.data.output.shard_tokens),
        shard_bytes=estimate.shard_bytes,
        free_bytes=store.free_bytes(),
        engine=choice.name,
        engine_reason=choice.reason,
        decoding=prepared.tokenizer.normalises,
        processes=slots,
        seconds=None if core_seconds is None else START_SECONDS + core_seconds / slots,
        there=there,
    )


def _what_is_there(store: Store, prepared: Prepared, watch: Watcher) -> str:
    index = read_index(store)
    if index is not None:
        if is_proven(store, index, prepared.run_key):
            changed = difference_from_index(store, index, prepared)
            if changed is None:
                warn_of_touched(read_plan(store), prepared.files, watch)
                return "this run is complete: nothing would be done"
            watch(
                Warned(
                    f"the source or the tokenizer changed after this run was complete: {changed}. The dataset holds "
                    "what was read then; to tokenize the source as it is now, write to another output.uri, or set a "
                    "new rerunToken where output.uri holds {rerunToken}"
                )
            )
            return f"this run is complete: nothing would be done; changed since: {changed}"
        require_own_index(store, index, prepared)
        return "the same data, from another run: its shards would be checked"
    plan = read_plan(store)
    if plan is not None:
        require_own_plan(store, plan, prepared, watch)
        if prepared.foreseen is not None:  # what has been done is there to be looked at
            watch(Warned(f"this run would end with {prepared.foreseen.reason}: {prepared.foreseen.message}"))
        _probe(store)
        failure = read_failure(store)
        ended = "" if failure is None else f" (its last start ended with {failure.reason}: {failure.message})"
        return f"an unfinished run of this job, which would be resumed{ended}"
    refuse_nested_output(store)
    refuse_foreign_files(store, prepared)
    if prepared.foreseen is not None:
        raise prepared.foreseen
    require_room(store, prepared.estimate, watch)
    require_shards(prepared)
    _probe(store)
    return "nothing: a new run"


def _probe(store: Store) -> None:
    """Create and remove an object, so that an output that cannot be written is refused now; leaves nothing."""
    root = store.local_path("")
    folders = [] if root is None else [root / layout.OWN, root, *root.parents]
    with map_os_errors("look at", store.uri):
        missing = [folder for folder in folders if not folder.exists()]
    try:
        probe_output(store)
        store.close_scratch()
    finally:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()


_GO_ON = "start the same `tokjob run` again; it goes on from here"


@dataclass(frozen=True, slots=True)
class OutputState:
    """How far the run at an output is. `phase`: Empty, Running, Interrupted, Failed, Complete or Damaged.

    `poison`: documents that were found to kill their worker. `read_bytes`, `quarantined_bytes`: of documents; None
    where a receipt of an older version does not know them. `reason` and `message`: why the last start of a run that is
    Failed ended, or what is wrong with a dataset that is Damaged; for Empty, that the place does not exist.
    """

    uri: str
    phase: str
    plan_id: str = ""
    epoch: int = 0
    engine: str = ""
    ranges: int = 0
    ranges_done: int = 0
    shards_done: int = 0
    tokens: int = 0
    source_bytes: int = 0
    quarantined: int = 0
    read_bytes: int | None = None
    quarantined_bytes: int | None = None
    files_dropped: int = 0
    poison: int = 0
    next_step: str = ""
    reason: str = ""
    message: str = ""


def look_at_output(uri: str | os.PathLike[str]) -> OutputState:
    """The state of an output, from its index, plan and ledger; raises `SpecError` where something else is."""
    store = open_store(absolute_uri(uri))
    plan = read_plan(store)
    index = read_own_index(store)
    if plan is None:
        if index is None:
            if foreign_content(store) is not None:
                raise not_an_output(store)
            root = store.local_path("")
            message = "" if root is None or root.exists() else f"{store.uri} does not exist{near_folder(root)}"
            return OutputState(store.uri, "Empty", message=message, next_step="tokjob run with this output.uri")
        return _finished(store, OutputState(store.uri, "Complete"))
    try:
        epoch = current_epoch(store)
    except (DataError, NotFound) as error:
        if index is not None:  # a dataset is whole without its epochs
            return _finished(store, OutputState(store.uri, "Complete", plan.plan_id))
        if isinstance(error, DataError):
            raise
        return _unfinished(store, OutputState(store.uri, "Interrupted", plan.plan_id, ranges=plan.n_ranges))
    ledger = read_ledger(store, plan, epoch.number)
    results = [result for receipt in ledger.ranges.values() for result in receipt.slices]
    state = OutputState(
        uri=store.uri,
        phase="Interrupted" if index is None else "Complete",
        plan_id=plan.plan_id,
        epoch=epoch.number,
        engine=epoch.engine,
        ranges=plan.n_ranges,
        ranges_done=len(ledger.ranges),
        shards_done=len(ledger.shards),
        tokens=sum(sum(result.tokens) for result in results),
        source_bytes=sum(receipt.source_bytes for receipt in ledger.ranges.values()),
        quarantined=sum(sum(result.quarantined.values()) for result in results),
        read_bytes=_sum_of_known([result.read_bytes for result in results]),
        quarantined_bytes=_sum_of_known([result.quarantined_bytes for result in results]),
        files_dropped=len({result.file for result in results if not result.is_read}),
        poison=sum(map(len, ledger.poison.values())),
    )
    return _unfinished(store, state) if index is None else _finished(store, state)


def _finished(store: Store, state: OutputState) -> OutputState:
    """Complete, unless a listing shows that something is gone."""
    try:
        missing = find_missing(store)
    except DataError as error:
        return replace(state, phase="Damaged", reason=error.reason, message=error.message, next_step=error.next_step)
    if not missing:
        return replace(state, next_step=tokjob("verify", store.uri))
    return replace(
        state,
        phase="Damaged",
        reason="DatasetIncomplete",
        message=f"{counted(len(missing), 'shard or sidecar is', 'shards and sidecars are')} missing or of another "
        "size, the first: "
        f"{store.uri}/{missing[0]}",
        next_step="run the job with a new rerunToken: damaged shards are written again from the source; "
        f"{tokjob('verify', store.uri)} lists everything",
    )


def _unfinished(store: Store, state: OutputState) -> OutputState:
    """Running, Failed or Interrupted."""
    if store.has_live_writers():
        is_local = store.local_path("") is not None
        step = "wait" if is_local else f"wait; one that was killed is seen for {DEAD_AFTER_S / 60:.0f} minutes more"
        return replace(state, phase="Running", next_step=step)
    failure = read_failure(store)
    if failure is None:
        return replace(state, next_step=_GO_ON)
    reason, message, next_step = failure
    return replace(state, phase="Failed", reason=reason, message=message, next_step=next_step)


def _sum_of_known(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was (or would be) removed. `stays`: files that are not of this run, path and reason, although they have a
    shard's name or lie below `_tokenization/`. `shards_stay`: the plan is too damaged to say which files are shards.
    """

    removed: list[Entry]
    stays: tuple[tuple[str, str], ...]
    shards_stay: bool


def clean_output(uri: str | os.PathLike[str], *, dry_run: bool, force: bool = False) -> Cleaned:
    """Remove what an unfinished run wrote, whatever state its records are in, and nothing else (see `own_files`).

    Raises `ChangedError` for a committed dataset or an output that a run writes to, `DataError` for a damaged index,
    beside which a complete dataset may lie, and `SpecError` where there is nothing of ours. `force`: believe the caller
    that no run writes to a store that is far away any more; of local disks it is known.
    """
    store = open_store(absolute_uri(uri))
    if _read_index_to_clean(store) is not None:
        raise ChangedError(
            "DatasetCommitted",
            f"{store.uri} holds a complete dataset, which clean never removes",
            next_step=f"if it is really not wanted, remove it yourself: {_remove_command(store)}",
        )
    is_local = store.local_path("") is not None
    if store.has_live_writers() and (is_local or not force):
        raise ChangedError(
            "OutputLive",
            f"{store.uri}: a run is writing there now"
            + ("" if is_local else f", or was killed less than {DEAD_AFTER_S / 60:.0f} minutes ago"),
            next_step="stop it first (Ctrl-C; of a job on Kubernetes set spec.suspend)"
            + ("" if is_local else "; if you know that it was killed, wait for so long, or give --force"),
        )
    try:
        has_plan = read_plan(store) is not None
    except DataError:
        has_plan = True
    if not has_plan:
        raise not_an_output(store)
    naming = read_naming(store.read(layout.PLAN))
    listed = list(store.list(layout.OWN))
    own = sort_own(store, listed)
    named = [] if naming is None else list(naming.list_named(store, strictly=True))
    shards = Sorted([], []) if naming is None else sort_shards(store, naming, named, listed)
    tables = [entry for entry in [store.stat(layout.SHARDS_TABLE)] if entry is not None]
    removed = [*shards.ours, *tables, *own.ours]
    stays = tuple((entry.path, reason) for entry, reason in (*shards.foreign, *own.foreign))
    if not dry_run:
        delete_all(store, [entry for entry in removed if entry.path != layout.PLAN])
        store.delete(layout.PLAN)  # last: until then a second `clean` knows what is ours
        store.close_scratch()
        _remove_empty_folders(store, removed)
    return Cleaned(removed, stays, shards_stay=naming is None)


def _read_index_to_clean(store: Store) -> Index | None:
    """The index; raises what `read_own_index` raises, and says of a damaged one how to go on."""
    try:
        return read_own_index(store)
    except DataError as error:
        raise DataError(
            "RecordCorrupt",
            f"{error.message}: there may be a complete dataset, which clean never removes",
            next_step=f"{error.next_step}. If nothing there is wanted, remove it yourself: {_remove_command(store)}",
        ) from error


def _remove_empty_folders(store: Store, removed: list[Entry]) -> None:
    """Remove the folders that `removed` leaves empty, and our own empty ones."""
    root = store.local_path("")
    if root is not None:
        folders = {str(folder) for entry in removed for folder in PurePosixPath(entry.path).parents} - {"."}
        remove_empty_folders(root, folders)


def _remove_command(store: Store) -> str:
    """What removes everything at an output."""
    if store.local_path("") is not None:
        return f"rm -r {shlex.quote(store.uri)}"
    return f"gcloud storage rm -r {shlex.quote(store.uri + '/')}"


def absolute_uri(uri: str | os.PathLike[str]) -> str:
    """`uri` as jobs resolve it: local paths absolute, no slash at the end."""
    uri = os.fspath(uri)
    return str(plain_path(uri)) if scheme_of(uri) == "file" else uri.rstrip("/")
