"""Decides which files at an output this program wrote, so that it deletes no other.

A file of a shard is ours if a receipt of any epoch names it. It gets its name before the receipt is written, so a run
that was killed may leave a few without one. Before them it writes the shard's sidecar or file of parts, which say how
many tokens the shard has. So ours are the files that look as one of a shard of so many tokens (its format decides).
Below `_tokenization/` the names decide. What lies in an output inside this one is never ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePosixPath

import numpy as np

from tokenization_worker.errors import DataError
from tokenization_worker.formats.sidecar import parse_sidecar
from tokenization_worker.host.parallel import map_at_once
from tokenization_worker.output import layout
from tokenization_worker.output.naming import Naming
from tokenization_worker.output.object_metadata import record_of
from tokenization_worker.output.record import load_record
from tokenization_worker.sequences.parts import PART
from tokenization_worker.storage.base import Entry, NotFound, Store


@dataclass(frozen=True, slots=True)
class Sorted:
    """`ours` may be deleted; `foreign`: the others, each with the reason."""

    ours: list[Entry]
    foreign: list[tuple[Entry, str]]


def sort_shards(store: Store, naming: Naming, shards: Iterable[Entry], own: Iterable[Entry]) -> Sorted:
    """Sort files that have a shard's name. `own`: what lies below `_tokenization/`, at least the receipts of all epochs
    and the sidecars.
    """
    found = sort_nested(store, list(shards))
    own = list(own)
    receipted = _receipted_paths(store, own) if found.ours else set()
    unlisted = [entry for entry in found.ours if entry.path not in receipted]
    ours = [entry for entry in found.ours if entry.path in receipted]
    begun = _begun_tokens(store, naming, unlisted, [entry for entry in own if entry.path not in receipted])
    reasons = map_at_once(lambda entry: naming.why_foreign(store, entry, begun), unlisted, store.connections)
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


def _begun_tokens(store: Store, naming: Naming, named: Sequence[Entry], own: Sequence[Entry]) -> set[int]:
    """How many tokens the shards have that a run may have left without a receipt, by their sidecars or files of parts.

    None of these has a receipt: `named` have a shard's name, `own` lie below `_tokenization/`.
    """
    if not named:
        return set()
    sidecars = [entry for entry in own if entry.path.startswith(layout.DOCUMENTS)]
    parts = [entry for entry in named if naming.is_parts(entry.path)]
    counts = map_at_once(lambda entry: _tokens_of_sidecar(store, entry), sidecars, store.connections)
    rows = map_at_once(lambda entry: _rows_of_parts(store, entry), parts, store.connections)
    tokens = {*counts, *(naming.row_length * count for count in rows)}
    return {count for count in tokens if 0 < count <= naming.shard_tokens}


def _tokens_of_sidecar(store: Store, entry: Entry) -> int:
    """0 where it went meanwhile or is corrupt."""
    try:
        data = store.read(entry.path)
        return int(parse_sidecar(data, sha256(data).hexdigest(), entry.path).lengths.sum())
    except (NotFound, DataError):
        return 0


def _rows_of_parts(store: Store, entry: Entry) -> int:
    """0 where the file went meanwhile, or is too short for a part."""
    try:
        last = store.read_range(entry.path, max(0, entry.size - PART.itemsize), entry.size)
    except NotFound:
        return 0
    return int(np.frombuffer(last, PART)["row"][0]) + 1 if len(last) == PART.itemsize else 0


def _receipted_paths(store: Store, own: Iterable[Entry]) -> set[str]:
    """The paths that the receipts among `own` name, and those of their sidecars; a corrupt receipt names none."""
    receipts = [entry for entry in own if layout.is_shard_receipt(entry.path)]
    named = map_at_once(lambda entry: _paths_in(store, entry), receipts, store.connections)
    return {path for paths in named for path in paths}


def _paths_in(store: Store, receipt: Entry) -> list[str]:
    data = record_of(receipt)
    try:
        fields = load_record(store.read(receipt.path)) if data is None else load_record(data, is_proven=True)
        files = [str(file["path"]) for file in fields.get("files", ())]
        return [str(fields["path"]), *files, layout.documents_path_of(receipt.path)]
    except (NotFound, ValueError, TypeError, KeyError):
        return []
