"""What a run tells whoever watches it. Values only; who prints them, and how, is the watcher's business."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tokenization_worker.receipts import RangeReceipt, ShardReceipt


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan is fixed. `core_seconds`: expected work of one core; `adopted`: an earlier or concurrent start had
    written it."""

    files: int
    stored_bytes: int
    ranges: int
    estimated_tokens: int
    core_seconds: float
    tokenizer: str
    engine: str
    is_accelerated: bool
    adopted: bool


@dataclass(frozen=True, slots=True)
class Resumed:
    """Work that earlier starts have done. `done`: their ranges, as half-open stretches in order."""

    ranges_done: int
    done: tuple[tuple[int, int], ...]
    ranges: int
    shards_done: int


@dataclass(frozen=True, slots=True)
class Warned:
    """Something that asks for a look, not for a stop."""

    message: str


@dataclass(frozen=True, slots=True)
class Progress:
    """After every task. `shards` is None until the last file is read; bytes are stored bytes.

    `receipt`: what has just been done; None at the start.
    """

    ranges_done: int
    ranges: int
    bytes_done: int
    bytes_total: int
    tokens: int
    documents: int
    quarantined: int
    source_bytes: int
    shards_done: int
    shards: int | None
    receipt: RangeReceipt | ShardReceipt | None


@dataclass(frozen=True, slots=True)
class Finished:
    """The dataset is committed. `already`: it was before this start. `rebuilt`: shards written again."""

    uri: str
    already: bool
    rebuilt: int
    documents_read: int
    documents_written: int
    documents_quarantined: int
    files_dropped: int
    tokens: int
    text_bytes: int
    shards: int
    quarantine_limit: int | None


Event = Planned | Resumed | Warned | Progress | Finished
Watcher = Callable[[Event], None]


def ignore(event: Event) -> None:
    """A watcher that looks away."""
