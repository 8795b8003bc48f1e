"""Decides which files at an output this program wrote, so that it deletes no other.

A file of a shard is ours if a receipt of any epoch names it. It gets its name before the receipt is written, so a run
that was killed may leave a few without one: of those, ours are the files that look as one of a shard of the plan (its
format decides). Below `_tokenization/` the names decide. What lies in an output inside this one is never ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from tokenization_worker.host.parallel import map_at_once
from tokenization_worker.output import layout
from tokenization_worker.output.naming import Naming
from tokenization_worker.output.object_metadata import record_of
from tokenization_worker.output.record import load_record
from tokenization_worker.storage.base import Entry, NotFound, Store


@dataclass(frozen=True, slots=True)
class Sorted:
    """`ours` may be deleted; `foreign`: the others, each with the reason."""

    ours: list[Entry]
    foreign: list[tuple[Entry, str]]


def sort_shards(store: Store, naming: Naming, shards: Iterable[Entry], own: Iterable[Entry]) -> Sorted:
    """Sort files that have a shard's name. `own`: what lies below `_tokenization/`, with the receipts of all epochs."""
    found = sort_nested(store, list(shards))
    receipted = _receipted_paths(store, own) if found.ours else set()
    unlisted = [entry for entry in found.ours if entry.path not in receipted]
    ours = [entry for entry in found.ours if entry.path in receipted]
    reasons = map_at_once(lambda entry: naming.why_foreign(store, entry), unlisted, store.connections)
    for entry, reason in zip(unlisted, reasons, strict=True):
        if reason is None:
            ours.append(entry)
        else:
            found.foreign.append((entry, f"no receipt names it, and {reason}"))
    return Sorted(ours, found.foreign)


def sort_own(store: Store, entries: Iterable[Entry]) -> Sorted:
    """Sort what lies below `_tokenization/`."""
    named: list[Entry] = []
    foreign: list[tuple[Entry, str]] = []
    for entry in entries:
        if layout.is_own_name(entry.path):
            named.append(entry)
        else:
            foreign.append((entry, "tokjob writes no file of this name"))
    found = sort_nested(store, named)
    return Sorted(found.ours, [*foreign, *found.foreign])


def sort_nested(store: Store, entries: Sequence[Entry]) -> Sorted:
    """Sort out what lies in an output inside this one: below a folder with an index or a plan of its own."""
    folders = {folder for entry in entries for folder in _folders_of(entry.path)}
    is_output = map_at_once(lambda folder: _is_output(store, folder), sorted(folders), store.connections)
    nested = {folder for folder, yes in zip(sorted(folders), is_output, strict=True) if yes}
    found = Sorted([], [])
    for entry in entries:
        inside = next((folder for folder in _folders_of(entry.path) if folder in nested), None)
        if inside is None:
            found.ours.append(entry)
        else:
            found.foreign.append((entry, f"it lies in {inside}, which is another output"))
    return found


def _folders_of(path: str) -> list[str]:
    """The folders that `path` lies in, but for the output itself."""
    return [str(folder) for folder in PurePosixPath(path).parents][:-1]


def _is_output(store: Store, folder: str) -> bool:
    return any(store.stat(f"{folder}/{name}") is not None for name in (layout.INDEX, layout.PLAN))


def _receipted_paths(store: Store, own: Iterable[Entry]) -> set[str]:
    """The paths that the receipts among `own` name; a corrupt receipt names none."""
    receipts = [entry for entry in own if layout.is_shard_receipt(entry.path)]
    named = map_at_once(lambda entry: _paths_in(store, entry), receipts, store.connections)
    return {path for paths in named for path in paths}


def _paths_in(store: Store, receipt: Entry) -> list[str]:
    data = record_of(receipt)
    try:
        fields = load_record(store.read(receipt.path)) if data is None else load_record(data, is_proven=True)
        return [str(fields["path"]), *(str(file["path"]) for file in fields.get("files", ()))]
    except (NotFound, ValueError, TypeError, KeyError):
        return []
