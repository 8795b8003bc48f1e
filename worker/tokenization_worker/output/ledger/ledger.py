"""The ledger: all receipts of a plan. It alone decides which work is finished.

Reading it is the whole of "resume": every start lists the receipts and does what is missing. A pipeline names the kinds
of receipts that its tasks write; the ledger knows none of them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeVar

from tokenization_worker.output import layout
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.output.record import require_plan
from tokenization_worker.output.scan import CorruptRecord, read_ours
from tokenization_worker.storage.base import Store

K = TypeVar("K")
K_co = TypeVar("K_co", covariant=True)
R = TypeVar("R")


class ReceiptKind(Protocol[K_co, R]):
    """A kind of receipt: where it is, how it is read, and what it must say.

    `folder`: below the folder of an epoch, with a slash at the end; each kind has its own.
    """

    @property
    def folder(self) -> str: ...

    def pattern(self, plan: Plan) -> str:
        """A regular expression for the names of files in the folder."""
        ...

    def name_starts(self, plan: Plan, found: Ledger) -> Iterable[str]:
        """Every name in the folder begins with one of these; `found`: the receipts of the kinds before this one.

        A store with a network in between is listed in parts at once, for which it needs them.
        """
        ...

    def decode(self, record: dict[str, Any]) -> R:
        """The receipt of a record; raises `KeyError`, `TypeError` or `ValueError` where it is none."""
        ...

    def key_of(self, receipt: R) -> K_co:
        """What the receipt is known by: one receipt for each."""
        ...

    def make_check(self, plan: Plan, epoch: int) -> Callable[[str, R], None]:
        """A check of a path and its receipt, which raises `ValueError` where the plan has no such receipt there."""
        ...


@dataclass(slots=True)
class Ledger:
    """The receipts of one epoch, of the kinds that it was made for. What it returns are views; methods change it.

    Receipts of a kind keep the order in which they were added, so that a count need read only new ones.
    """

    _receipts: dict[str, dict[Any, Any]]  # by folder of the kind, by key
    _corrupt: list[CorruptRecord] = field(default_factory=list)

    @classmethod
    def of(cls, kinds: Iterable[ReceiptKind[Any, Any]]) -> Self:
        """An empty one."""
        return cls({kind.folder: {} for kind in kinds})

    def receipts(self, kind: ReceiptKind[K, R]) -> Mapping[K, R]:
        """The receipts of a kind by key."""
        return MappingProxyType(self._receipts[kind.folder])

    def receipts_from(self, kind: ReceiptKind[K, R], count: int) -> Iterator[R]:
        """The receipts that were added after the first `count` of the kind, the last one first."""
        receipts = self._receipts[kind.folder]
        return islice(reversed(receipts.values()), len(receipts) - count)

    @property
    def corrupt(self) -> Sequence[CorruptRecord]:
        """Receipts that are not as they were written: they count as absent."""
        return self._corrupt

    def add(self, kind: ReceiptKind[K, R], receipt: R) -> None:
        self._receipts[kind.folder][kind.key_of(receipt)] = receipt

    def forget(self, kind: ReceiptKind[K, R], key: K) -> None:
        """Take what a receipt is of for not done: the receipt does not count."""
        del self._receipts[kind.folder][key]


@contextmanager
def without_collector() -> Iterator[None]:
    """A million objects that stay, and no cycles: looking for garbage among them takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@without_collector()
def read_ledger(store: Store, plan: Plan, epoch: int, kinds: Sequence[ReceiptKind[Any, Any]]) -> Ledger:
    """The receipts of these kinds that are recorded for `plan` in `epoch`; they are read in the order of `kinds`.

    Raises `ChangedError` for a receipt of another plan, and `DataError("RecordCorrupt")` for one that is whole and that
    its kind refuses.
    """
    ledger = Ledger.of(kinds)
    for kind in kinds:
        for receipt in _read(store, plan, epoch, kind, ledger):
            ledger.add(kind, receipt)
    return ledger


def _read(store: Store, plan: Plan, epoch: int, kind: ReceiptKind[K, R], ledger: Ledger) -> Iterator[R]:
    check = kind.make_check(plan, epoch)

    def make(path: str, record: dict[str, Any]) -> R:
        require_plan(store.uri, path, record["plan_id"], plan.plan_id)
        receipt = kind.decode(record)
        check(path, receipt)
        return receipt

    folder = f"{layout.epoch_ledger(epoch)}{kind.folder}"
    return read_ours(store, folder, kind.pattern(plan), kind.name_starts(plan, ledger), make, ledger._corrupt)
