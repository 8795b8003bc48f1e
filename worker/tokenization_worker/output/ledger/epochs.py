"""Epochs: which engine a run uses, and how an epoch ends.

Epoch 0 is written with the plan and names the engine. Whoever sees the accelerated engine differ from the
reference on a document writes the next epoch, with the evidence, and stops; every later start works in the
new epoch, whose engine is the reference. Receipts and segments live under their epoch, so nothing that the
voided engine produced is ever used again. A finished run **seals** its epoch by taking the next number
itself: a run is either voided or committed, never both.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tokenization_worker.errors import DataError
from tokenization_worker.messages.commands import tokjob
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import Voided, create_record
from tokenization_worker.output.record import load_record, parsing
from tokenization_worker.readers.document_batch import EXCERPT_CHARACTERS
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.tokenizers.base import EngineMismatch
from tokenization_worker.tokenizers.checks.engine_check import EngineVerdict

REFERENCE = "reference"
PROBE_ON = "the probe on "
"""Where a document's URI stands, if the text that voids an engine is one that a node's engine check made."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The epoch to work in. `sealed`: its run is complete but for the index. `history`: all entries."""

    number: int
    engine: str
    sealed: bool
    history: tuple[dict[str, Any], ...]

    @property
    def versions(self) -> str:
        """Of the libraries that gave the plan's samples; "" where an older version of this program began the run."""
        return str(self.history[0].get("versions", ""))


def start_epoch(store: Store, engine: str, versions: str = "") -> Epoch:
    """The current epoch, after writing epoch 0 with `engine` where there is none."""
    create_record(store, layout.epoch_path(0), {"epoch": 0, "engine": engine, "versions": versions})
    return current_epoch(store)


def current_epoch(store: Store) -> Epoch:
    """The newest epoch that is not a seal; raises `NotFound` where there is none."""
    history: list[dict[str, Any]] = []
    sealed = False
    while not sealed and (entry := _read_entry(store, len(history))) is not None:
        history.append(entry)
        sealed = "sealed" in entry  # nothing comes after a seal
    if not history:
        raise NotFound(layout.epoch_path(0))
    working = history[-2] if sealed else history[-1]
    return Epoch(working["epoch"], working["engine"], sealed, tuple(history))


def find_epoch(store: Store) -> Epoch | None:
    """The current epoch of an unfinished run; None where no range of it is done.

    Raises `DataError("RecordCorrupt")` where ranges are done and the epochs are gone: only they say which engine and
    which versions of libraries the tokens are of, and whether that engine was voided.
    """
    with suppress(NotFound):
        return current_epoch(store)
    if not any(layout.is_range_receipt(entry.path) for entry in store.list(layout.LEDGER)):
        return None
    with suppress(NotFound):  # another start wrote both between these calls
        return current_epoch(store)
    raise epochs_gone(store)


def epochs_gone(store: Store) -> DataError:
    """The error of a run that has done ranges and has no epochs."""
    return DataError(
        "RecordCorrupt",
        f"{store.uri}/{layout.epoch_path(0)} is missing, but the run has finished ranges: only this file records which "
        "engine and library versions made their tokens",
        next_step=f"restore {layout.EPOCHS} from a copy, or remove the unfinished run ({tokjob('clean', store.uri)}) "
        "and start again",
    )


def _read_entry(store: Store, number: int) -> dict[str, Any] | None:
    """The epoch or seal with this number, or None; raises `DataError` if it has not what such an entry has."""
    path = layout.epoch_path(number)
    try:
        data = store.read(path)
    except NotFound:
        return None
    with parsing(store.uri, path):
        entry = load_record(data)
        if entry["epoch"] != number:
            raise ValueError(f"it is the entry of epoch {entry['epoch']}")
        if "sealed" not in entry:
            _require_possible(entry)
            return {**entry}
        if number == 0 or entry["sealed"] != number - 1:
            raise ValueError(f"it seals epoch {entry['sealed']}, which is not the one before it")
        return {**entry}


def _require_possible(entry: dict[str, Any]) -> None:
    """Raise `TypeError` or `KeyError` for the entry of an engine that cannot be one."""
    texts = [entry["engine"], entry.get("versions", "")]
    if "voids" in entry:
        document = entry["document"]
        texts += [entry["voids"]["engine"], document["uri"], document["excerpt"]]
        if type(entry["firstDifference"]) is not int or type(document["position"]) is not int:
            raise TypeError("firstDifference or the position of its document is not a number")
    for text in texts:
        if type(text) is not str:
            raise TypeError(f"found {text!r:.60}, expected text")


def seal_epoch(store: Store, epoch: int) -> None:
    """Make it impossible to void `epoch`; raises `Voided` if that has happened already."""
    found = create_record(store, layout.epoch_path(epoch + 1), {"epoch": epoch + 1, "sealed": epoch})
    if found.get("sealed") != epoch:
        raise _voided(store, epoch, found)


def require_current(store: Store, epoch: int) -> None:
    """Raise `Voided` if a newer epoch has voided `epoch`; a seal is no reason. One request, as writers ask often."""
    next_entry = _read_entry(store, epoch + 1)
    if next_entry is not None and "sealed" not in next_entry:
        raise _voided(store, epoch, next_entry)


def void_engine(
    store: Store, epoch: int, engine: str, mismatch: EngineMismatch, *, uri: str, position: int, text: str
) -> Voided:
    """Write the next epoch with the evidence; returns the error that stops this run."""
    document = {"uri": uri, "position": position, "excerpt": text[:EXCERPT_CHARACTERS]}
    return _void(store, epoch, engine, mismatch, document)


def void_unchecked(store: Store, epoch: int, engine: str, verdict: EngineVerdict, node: str) -> Voided:
    """`void_engine` for an engine that this node's check has found to differ, on a text that it made."""
    mismatch = EngineMismatch(0, list(verdict.found), list(verdict.expected))
    place = f"{PROBE_ON}{node}"
    excerpt = (verdict.text or verdict.difference)[:EXCERPT_CHARACTERS]
    return _void(store, epoch, engine, mismatch, {"uri": place, "position": 0, "excerpt": excerpt})


def _void(store: Store, epoch: int, engine: str, mismatch: EngineMismatch, document: dict[str, Any]) -> Voided:
    first = next(
        (i for i, (a, b) in enumerate(zip(mismatch.found, mismatch.expected, strict=False)) if a != b),
        min(len(mismatch.found), len(mismatch.expected)),
    )
    entry = {
        "epoch": epoch + 1,
        "engine": REFERENCE,
        "voids": {"epoch": epoch, "engine": engine},
        "document": document,
        "firstDifference": first,
        "found": mismatch.found,
        "expected": mismatch.expected,
    }
    found = create_record(store, layout.epoch_path(epoch + 1), entry)
    return _voided(store, epoch, found)


def _voided(store: Store, epoch: int, entry: dict[str, Any]) -> Voided:
    evidence = f"{store.uri}/{layout.epoch_path(epoch + 1)}"
    if "sealed" in entry:
        return Voided(
            "EngineVoided",
            f"engine of epoch {epoch} differs from the reference, but the dataset is complete already: {evidence}",
            next_step="run `tokjob verify --mode full` on the output and report the document",
        )
    document = entry["document"]
    place = f"the document at {document['uri']}, position {document['position']}"
    if document["uri"].startswith(PROBE_ON):
        place = f"the text {document['excerpt']!r} of {document['uri']}"
    return Voided(
        "EngineVoided",
        f"engine {entry['voids']['engine']} differs from the reference at token {entry['firstDifference']} of "
        f"{place}; evidence: {evidence}",
        next_step="start the same command again: it tokenizes everything with the reference engine",
    )
