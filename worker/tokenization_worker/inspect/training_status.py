"""Reads the progress of the training at an output, from its index, plan and ledger."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from tokenization_worker.errors import ChangedError, DataError
from tokenization_worker.inspect.uris import absolute_uri
from tokenization_worker.output import layout
from tokenization_worker.output.index import is_of_training
from tokenization_worker.output.last_failure import read_failure
from tokenization_worker.output.plan_file import Plan, read_any_plan
from tokenization_worker.output.recovery import advise_training
from tokenization_worker.output.training_index import read_training_index
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.storage.listing import list_at_once
from tokenization_worker.storage.open import open_store

_GO_ON = "start the same `tokjob train` again; it continues from here"
_TRAIN = "start the same `tokjob train` again, without --until counts; it trains from the counts"


@dataclass(frozen=True, slots=True)
class TrainingStatus:
    """How far the training at an output is. `phase`: Running, Interrupted, Failed, Complete or Damaged. `is_merged`:
    the counts of all ranges are merged. `reason` and `message`: why the last start of one that is Failed ended, or what
    one that is Damaged lacks.
    """

    uri: str
    phase: str
    ranges: int = 0
    ranges_done: int = 0
    is_merged: bool = False
    vocab_sizes: tuple[int, ...] = ()
    counts_digest: str = ""
    next_step: str = ""
    reason: str = ""
    message: str = ""


def read_training_status(uri: str | os.PathLike[str]) -> TrainingStatus | None:
    """The status of a training; None where none is. Raises `DataError` for a corrupt index."""
    store = open_store(absolute_uri(uri))
    if holds_training_index(store):
        index = read_training_index(store)
        if index is not None:
            tokenizers, counts = index["tokenizers"], index["counts"]
            status = TrainingStatus(
                store.uri,
                "Complete",
                is_merged=True,
                vocab_sizes=tuple(each["vocabularySize"] for each in tokenizers),
                counts_digest=counts["digest"],
                next_step=f"name {_choice(store, [each['file'] for each in tokenizers])} in the tokenizer.uri of a job",
            )
            gone = next((name for name in index["files"] if store.stat(name) is None), None)
            return status if gone is None else _damaged(status, store, gone)
    plan = find_unfinished_training(store)
    return None if plan is None else _unfinished(store, plan.n_ranges)


def _damaged(status: TrainingStatus, store: Store, gone: str) -> TrainingStatus:
    return replace(
        status,
        phase="Damaged",
        reason="TokenizerChanged",
        message=f"{store.uri}/{gone} is gone",
        next_step=advise_training(store),
    )


def _choice(store: Store, files: list[str]) -> str:
    """The files that a job may name."""
    return " or ".join(f"{store.uri}/{file}" for file in files)


def holds_training_index(store: Store) -> bool:
    """Whether the index at `store` is of a training."""
    try:
        return is_of_training(store.read(layout.INDEX))
    except NotFound:
        return False


def find_unfinished_training(store: Store) -> Plan | None:
    """The plan of an unfinished training; None where none is, or something else."""
    if store.stat(layout.INDEX) is not None:
        return None
    try:
        plan = read_any_plan(store)
    except (ChangedError, DataError):  # told by what looks at a job's run
        return None
    return plan if plan is not None and plan.is_of_training else None


def _unfinished(store: Store, n_ranges: int) -> TrainingStatus:
    done = sum(1 for _ in list_at_once(store, [f"{layout.epoch_ledger(0)}{layout.COUNTED_RECEIPTS}"]))
    is_merged = store.stat(layout.merged_receipt_path()) is not None
    next_step = _TRAIN if is_merged else _GO_ON
    status = TrainingStatus(store.uri, "Interrupted", n_ranges, done, is_merged, next_step=next_step)
    if store.has_live_writers():
        return replace(status, phase="Running", next_step="wait")
    failure = read_failure(store)
    if failure is None:
        return status
    return replace(status, phase="Failed", reason=failure.reason, message=failure.message, next_step=failure.next_step)
