"""Removes the files that an unfinished run wrote, and no others (see `output.own_files`)."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath

from tokenization_worker.errors import ChangedError, DataError, TokenizationError
from tokenization_worker.inspect.training_status import find_unfinished_training, holds_training_index
from tokenization_worker.inspect.uris import absolute_uri
from tokenization_worker.output import layout
from tokenization_worker.output.index import ForeignIndex, not_an_output, not_own
from tokenization_worker.output.naming import Naming
from tokenization_worker.output.own_files import Sorted, sort_own, sort_shards
from tokenization_worker.output.plan_file import read_naming
from tokenization_worker.output.training_claim import find_claim
from tokenization_worker.run.observe import observe_output
from tokenization_worker.run.output_state import OutputState, Standing, judge
from tokenization_worker.storage.base import Entry, NotFound, Store
from tokenization_worker.storage.heartbeat import DEAD_AFTER_S
from tokenization_worker.storage.listing import delete_all
from tokenization_worker.storage.local.folders import remove_empty_folders
from tokenization_worker.storage.open import open_store


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was (or would be) removed. `stays`: files that are not of this run, path and reason, although they have a
    shard's name or lie below `_tokenization/`. `shards_stay`: the plan is too corrupt to say which files are shards.
    """

    removed: list[Entry]
    stays: tuple[tuple[str, str], ...]
    shards_stay: bool


def clean_output(uri: str | os.PathLike[str], *, dry_run: bool, force: bool = False) -> Cleaned:
    """Remove what an unfinished run wrote, whatever state its records are in.

    Raises `ChangedError` for a committed dataset or an output that a run writes to, `DataError` for a corrupt index,
    beside which a complete dataset may lie, and `SpecError` where there is nothing of ours. `force`: believe the caller
    that no run writes to a store that is far away any more; of local disks it is known.
    """
    store = open_store(absolute_uri(uri))
    if holds_training_index(store) or find_unfinished_training(store) is not None:
        return _clean_training(store, dry_run=dry_run, force=force)
    _require_unfinished(store, observe_output(store), force=force)
    naming = _read_naming(store)
    listed = list(store.list(layout.OWN))
    own = sort_own(store, listed)
    named = [] if naming is None else list(naming.list_named(store, strictly=True))
    shards = Sorted([], []) if naming is None else sort_shards(store, naming, named, listed)
    tables = [entry for entry in [store.stat(layout.SHARDS_TABLE)] if entry is not None]
    removed = [*shards.ours, *tables, *own.ours]
    stays = tuple((entry.path, reason) for entry, reason in (*shards.foreign, *own.foreign))
    if not dry_run:
        if store.stat(layout.INDEX) is not None:  # written while all that was listed
            raise _committed(store)
        delete_all(store, [entry for entry in removed if entry.path != layout.PLAN])
        store.delete(layout.PLAN)  # last: until then a second `clean` knows what is ours
        store.close_scratch()
        _remove_empty_folders(store, removed)
    return Cleaned(removed, stays, shards_stay=naming is None)


def _clean_training(store: Store, *, dry_run: bool, force: bool) -> Cleaned:
    """Remove what an unfinished training wrote."""
    if store.stat(layout.INDEX) is not None:
        raise ChangedError(
            "TrainingFinished",
            f"{store.uri} holds a trained tokenizer, which clean never removes",
            next_step=f"if you do not want it, remove it yourself: {_remove_command(store)}",
        )
    _require_idle(store, force=force)
    own = sort_own(store, list(store.list(layout.OWN)))
    written = [entry for path in _written_paths(store) if (entry := store.stat(path)) is not None]
    removed = [*written, *own.ours]
    if not dry_run:
        delete_all(store, [entry for entry in removed if entry.path != layout.PLAN])
        store.delete(layout.PLAN)
        store.close_scratch()
        _remove_empty_folders(store, removed)
    return Cleaned(removed, tuple((entry.path, reason) for entry, reason in own.foreign), shards_stay=False)


def _written_paths(store: Store) -> list[str]:
    """What an unfinished training may have written beside `_tokenization/`."""
    try:
        claim = find_claim(store)
    except DataError:  # its files are not known: they stay
        claim = None
    return [*layout.BESIDE_INDEX, *layout.export_paths([] if claim is None else claim["folders"])]


def _read_naming(store: Store) -> Naming | None:
    try:
        return read_naming(store.read(layout.PLAN))
    except NotFound:
        return None


def _committed(store: Store) -> ChangedError:
    return ChangedError(
        "DatasetCommitted",
        f"{store.uri} holds a complete dataset, which clean never removes",
        next_step=f"if you do not want it, remove it yourself: {_remove_command(store)}",
    )


def _require_unfinished(store: Store, state: OutputState, *, force: bool) -> None:
    """Raise unless an unfinished run is there, in any state, and nobody goes on with it."""
    verdict = judge(state)
    match verdict.standing:
        case Standing.COMPLETE:
            raise _committed(store)
        case Standing.REFUSED if verdict.error is not None:
            raise _worded(store, verdict.error)
    _require_idle(store, force=force)
    if verdict.standing is Standing.NEW:  # asked last: a run that begins has no plan yet
        raise not_an_output(store)


def _require_idle(store: Store, *, force: bool) -> None:
    """Raise where a run is writing there now."""
    is_local = store.local_path("") is not None
    if store.has_live_writers() and (is_local or not force):
        raise ChangedError(
            "OutputLive",
            f"{store.uri}: a run is writing there now"
            + ("" if is_local else f", or was killed less than {DEAD_AFTER_S / 60:.0f} minutes ago"),
            next_step="stop it first (Ctrl-C; of a job on Kubernetes set spec.suspend)"
            + ("" if is_local else "; if you know that it was killed, wait that long, or give --force"),
        )


def _worded(store: Store, error: TokenizationError) -> TokenizationError:
    """The error for the user of `clean`: what to do where a dataset may be complete."""
    if isinstance(error, ForeignIndex):
        return not_own(error)
    if not isinstance(error, DataError):
        return error
    return DataError(
        "RecordCorrupt",
        f"{error.message}: the output may hold a complete dataset, which clean never removes",
        next_step=f"{error.next_step}. If you want nothing that is there, remove it yourself: {_remove_command(store)}",
    )


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
