"""Looking without running: what a run would do, how far one is, and removing an unfinished one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from tokenization_worker import layout
from tokenization_worker.adoption import (
    planned_pins,
    probe_output,
    read_plan,
    refuse_foreign_files,
    require_own_index,
    require_own_plan,
)
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.arguments import require_processes
from tokenization_worker.epochs import current_epoch
from tokenization_worker.errors import ChangedError, DataError, SpecError
from tokenization_worker.events import Watcher, ignore
from tokenization_worker.formats import npy
from tokenization_worker.index import foreign_content, is_proven, read_index
from tokenization_worker.ledger import read_ledger
from tokenization_worker.plan import Plan, read_naming
from tokenization_worker.planning import Prepared, make_plan_of, prepare, require_room, require_shards
from tokenization_worker.processes import default_processes
from tokenization_worker.storage.base import Entry, NotFound, Store
from tokenization_worker.storage.listing import delete_all
from tokenization_worker.storage.local import map_os_errors
from tokenization_worker.storage.open import open_store, plain_path, scheme_of
from tokenization_worker.storage.scratch import SCRATCH, has_live_writers
from tokenization_worker.tokenizers.probe import choose_engine

START_SECONDS = 0.7
"""A whole run on a 1 MB file (2026-11-21)."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a run would do. Token counts are scaled from a sample of the source."""

    files: int
    stored_bytes: int
    source_bytes: int
    sampled_bytes: int
    tokens: int
    bytes_per_token: float
    tokenizer: str
    ranges: int
    largest_range: int
    largest_files: tuple[tuple[str, int], ...]
    output: str
    dtype: str
    shards: int
    shard_bytes: int
    free_bytes: int | None
    engine: str
    engine_reason: str
    processes: int
    seconds: float
    there: str


def make_plan(job: TokenizationJob, processes: int | None = None) -> Plan:
    """The plan that a run of `job` would write; writes nothing."""
    require_processes(processes)
    return make_plan_of(prepare(job), processes or default_processes())


def look_ahead(job: TokenizationJob, processes: int | None = None, watch: Watcher = ignore) -> Outlook:
    """Everything the plan phase can tell or refuse; raises what `run_job` would raise before it works."""
    store = open_store(resolve_data(job).output.uri)
    prepared = prepare(job, watch, planned_pins(store, job))
    there = _what_is_there(store, prepared, watch)
    slots = processes or default_processes()
    plan = make_plan_of(prepared, slots)
    estimate = prepared.estimate
    choice = choose_engine(prepared.tokenizer, "auto", estimate.source_bytes)
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
        output=store.uri,
        dtype=prepared.dtype,
        shards=-(-estimate.tokens // prepared.data.output.shard_tokens),
        shard_bytes=estimate.shard_bytes,
        free_bytes=store.free_bytes(),
        engine=choice.name,
        engine_reason=choice.reason,
        processes=slots,
        seconds=START_SECONDS + estimate.core_seconds(choice.name) / slots,
        there=there,
    )


def _what_is_there(store: Store, prepared: Prepared, watch: Watcher) -> str:
    index = read_index(store)
    if index is not None:
        if is_proven(store, index, prepared.run_key):
            return "this run is complete: nothing would be done"
        require_own_index(store, index, prepared)
        return "the same data, from another run: its shards would be checked"
    plan = read_plan(store)
    if plan is not None:
        require_own_plan(store, plan, prepared, watch)
        _probe(store)
        return "an unfinished run of this job, which would be resumed"
    refuse_foreign_files(store, prepared)
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


_GO_ON = (
    "start the same `tokjob run` again; it goes on from here. If it ended with an error, first do what that says: "
    "with exit code 3 or 4 it would end so again"
)


@dataclass(frozen=True, slots=True)
class OutputState:
    """How far the run at an output is. `phase`: Empty, Running, Interrupted or Complete.

    `poison`: documents that were found to kill their worker.
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
    files_dropped: int = 0
    poison: int = 0
    next_step: str = ""


def look_at_output(uri: str) -> OutputState:
    """The state of an output, from its index, plan and ledger; raises `SpecError` where something else is."""
    store = open_store(absolute_uri(uri))
    plan = read_plan(store)
    index = read_index(store)
    if plan is None:
        if index is None:
            there = foreign_content(store)
            if there is not None:
                raise SpecError(
                    "NotAnOutput",
                    f"{store.uri} holds no plan of ours: there is {there}",
                    next_step="check the path: it must be the output.uri of a job",
                )
            return OutputState(store.uri, "Empty", next_step="tokjob run with this output.uri")
        return OutputState(store.uri, "Complete", next_step=f"tokjob verify {store.uri}")
    try:
        epoch = current_epoch(store)
    except DataError:
        if index is None:
            raise
        return OutputState(store.uri, "Complete", plan.plan_id, next_step=f"tokjob verify {store.uri}")
    except NotFound:
        if index is not None:
            return OutputState(store.uri, "Complete", plan.plan_id, next_step=f"tokjob verify {store.uri}")
        phase, next_step = ("Running", "wait") if _is_live(store) else ("Interrupted", _GO_ON)
        return OutputState(store.uri, phase, plan.plan_id, ranges=plan.n_ranges, next_step=next_step)
    ledger = read_ledger(store, plan, epoch.number)
    results = [result for receipt in ledger.ranges.values() for result in receipt.slices]
    phase, next_step = "Interrupted", _GO_ON
    if index is not None:
        phase, next_step = "Complete", f"tokjob verify {store.uri}"
    elif _is_live(store):
        phase, next_step = "Running", "wait"
    return OutputState(
        uri=store.uri,
        phase=phase,
        plan_id=plan.plan_id,
        epoch=epoch.number,
        engine=epoch.engine,
        ranges=plan.n_ranges,
        ranges_done=len(ledger.ranges),
        shards_done=len(ledger.shards),
        tokens=sum(sum(result.tokens) for result in results),
        source_bytes=sum(receipt.source_bytes for receipt in ledger.ranges.values()),
        quarantined=sum(sum(result.quarantined.values()) for result in results),
        files_dropped=len({result.file for result in results if not result.is_read}),
        poison=sum(map(len, ledger.poison.values())),
        next_step=next_step,
    )


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was (or would be) removed. `shards_stay`: the plan is too damaged to say which files are shards."""

    removed: list[Entry]
    shards_stay: bool


def clean_output(uri: str, *, dry_run: bool) -> Cleaned:
    """Remove what an unfinished run wrote, whatever state its records are in.

    Raises `ChangedError` for a committed dataset or an output that a process of this machine writes to, and
    `SpecError` where there is nothing of ours.
    """
    store = open_store(absolute_uri(uri))
    if read_index(store) is not None:
        raise ChangedError(
            "DatasetCommitted",
            f"{store.uri} holds a complete dataset, which clean never removes",
            next_step=f"if it is really not wanted, remove the folder yourself: {store.uri}",
        )
    if _is_live(store):
        raise ChangedError("OutputLive", f"{store.uri}: a run is writing there now", next_step="stop it first (Ctrl-C)")
    try:
        has_plan = read_plan(store) is not None
    except DataError:
        has_plan = True
    if not has_plan:
        raise SpecError(
            "NotAnOutput",
            f"{store.uri} holds no plan of ours, so there is nothing to clean",
            next_step="check the path: it must be the output.uri of a job",
        )
    naming = read_naming(store.read(layout.PLAN))
    entries = [] if naming is None else _shards(store, *naming)
    shards = {entry.path for entry in entries}
    own = [entry for entry in store.list(layout.OWN) if entry.path not in shards]
    tables = [entry for entry in [store.stat(layout.SHARDS_TABLE)] if entry is not None]
    removed = [*entries, *tables, *own]
    if not dry_run:
        delete_all(store, [entry for entry in removed if entry.path != layout.PLAN])
        store.delete(layout.PLAN)  # last: until then a second `clean` knows what is ours
        store.close_scratch()
        _remove_empty_folders(store, removed)
    return Cleaned(removed, shards_stay=naming is None)


def _shards(store: Store, template: str, splits: list[str]) -> list[Entry]:
    matcher = layout.shard_matcher(template, npy.SUFFIX, splits)
    return [entry for entry in store.list(layout.static_prefix(template)) if matcher.fullmatch(entry.path)]


def _remove_empty_folders(store: Store, removed: list[Entry]) -> None:
    """Remove the folders that `removed` leaves empty, and our own empty ones, the deepest first."""
    root = store.local_path("")
    if root is None:
        return
    folders = {folder for entry in removed for folder in (root / entry.path).parents if root in folder.parents}
    folders |= {root / layout.OWN, *(path for path in (root / layout.OWN).rglob("*") if path.is_dir())}
    for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
        with suppress(OSError):
            folder.rmdir()


def _is_live(store: Store) -> bool:
    root = store.local_path("")
    if root is None:
        return False
    with map_os_errors("look at", root / SCRATCH):
        return has_live_writers(root)


def absolute_uri(uri: str) -> str:
    """`uri` as jobs resolve it: local paths absolute, no slash at the end."""
    return str(plain_path(uri)) if scheme_of(uri) == "file" else uri.rstrip("/")
