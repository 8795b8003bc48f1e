"""What is recorded of a tokenize run: the receipts of its ranges, scattered windows and shards, and what belongs to
them.

A thin class over the ledger of `output`. What belongs to a range besides its receipt is a segment, a list of unusable
documents, and verdicts on its files and documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType

from tokenization_worker.output import layout
from tokenization_worker.output.layout import ScatterKey, ShardKey
from tokenization_worker.output.ledger.crash_verdicts import read_crash_verdicts
from tokenization_worker.output.ledger.file_verdicts import read_file_verdicts
from tokenization_worker.output.ledger.ledger import Ledger, read_ledger, without_collector
from tokenization_worker.output.ledger.receipts import RangeReceipt, ScatterReceipt, ShardReceipt
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.output.scan import NUMBER, CorruptRecord, list_ours
from tokenization_worker.pipelines.tokenize.receipt_kinds import RANGES, SCATTERS, SHARDS, range_names, scatter_names
from tokenization_worker.readers.document_batch import CrashVerdict
from tokenization_worker.storage.base import Store

KINDS = (RANGES, SCATTERS, SHARDS)


@dataclass(slots=True)
class TokenizeLedger:
    """What is done in one epoch. Its properties are views: what changes it are its methods.

    Receipts and verdicts keep the order in which they were added, so that a count need read only new ones.
    """

    _receipts: Ledger = field(default_factory=lambda: Ledger.of(KINDS))
    _segments: set[int] = field(default_factory=set)
    _scattered: set[ScatterKey] = field(default_factory=set)
    _lost_lists: set[int] = field(default_factory=set)
    _verdicts: dict[int, tuple[str, str]] = field(default_factory=dict)
    _crash_verdicts: dict[int, tuple[CrashVerdict, ...]] = field(default_factory=dict)
    _corrupt_verdicts: list[CorruptRecord] = field(default_factory=list)

    @property
    def ranges(self) -> Mapping[int, RangeReceipt]:
        """Receipts by range."""
        return self._receipts.receipts(RANGES)

    @property
    def scatters(self) -> Mapping[ScatterKey, ScatterReceipt]:
        """Receipts by scattered window."""
        return self._receipts.receipts(SCATTERS)

    @property
    def shards(self) -> Mapping[ShardKey, ShardReceipt]:
        """Receipts by shard."""
        return self._receipts.receipts(SHARDS)

    @property
    def segments(self) -> Set[int]:
        """Ranges whose segment is there."""
        return self._segments

    @property
    def scattered(self) -> Set[ScatterKey]:
        """The windows whose scattered object is there."""
        return self._scattered

    @property
    def lost_lists(self) -> Set[int]:
        """Ranges whose quarantine list is not there, although their receipt names one."""
        return self._lost_lists

    @property
    def verdicts(self) -> Mapping[int, tuple[str, str]]:
        """Of corrupt files: file -> (outcome, detail)."""
        return MappingProxyType(self._verdicts)

    @property
    def crash_verdicts(self) -> Mapping[int, tuple[CrashVerdict, ...]]:
        """Documents that kill their worker, by file."""
        return MappingProxyType(self._crash_verdicts)

    @property
    def corrupt(self) -> Sequence[CorruptRecord]:
        """Receipts, and verdicts on files, that are not as they were written: they count as absent."""
        return [*self._receipts.corrupt, *self._corrupt_verdicts]

    def ranges_from(self, count: int) -> Iterator[RangeReceipt]:
        """The receipts of ranges that were added after the first `count`, the last one first."""
        return self._receipts.receipts_from(RANGES, count)

    def verdicts_from(self, count: int) -> Iterator[int]:
        """The files whose verdicts were added after the first `count`, the last one first."""
        return islice(reversed(self._verdicts), len(self._verdicts) - count)

    def add_range(self, receipt: RangeReceipt) -> None:
        self._receipts.add(RANGES, receipt)

    def add_scatter(self, receipt: ScatterReceipt) -> None:
        self._receipts.add(SCATTERS, receipt)

    def add_shard(self, receipt: ShardReceipt) -> None:
        self._receipts.add(SHARDS, receipt)

    def add_verdict(self, file: int, outcome: str, detail: str) -> None:
        """Take a verdict on a corrupt file; the first one stays."""
        self._verdicts.setdefault(file, (outcome, detail))

    def forget_range(self, range_id: int) -> None:
        """Take a range for not done: its receipt does not count."""
        self._receipts.forget(RANGES, range_id)
        self._segments.discard(range_id)
        self._lost_lists.discard(range_id)

    def forget_shard(self, key: ShardKey) -> None:
        """Take a shard for not written: its receipt does not count."""
        self._receipts.forget(SHARDS, key)

    def set_segments(self, there: Iterable[int], scattered: Iterable[ScatterKey] = ()) -> None:
        """Take note of the segments and scattered objects that are there now."""
        self._segments, self._scattered = set(there), set(scattered)

    def set_lost_lists(self, ranges: Iterable[int]) -> None:
        """Take note of the ranges whose quarantine list is not there now."""
        self._lost_lists = set(ranges)


@without_collector()
def read_tokenize_ledger(store: Store, plan: Plan, epoch: int) -> TokenizeLedger:
    """Everything recorded for `plan` in `epoch`; raises as `read_ledger`."""
    ledger = TokenizeLedger(read_ledger(store, plan, epoch, KINDS))
    names = range_names(plan)
    ledger.set_lost_lists(_find_lost_lists(store, epoch, ledger.ranges, names))  # after the receipts: they come later
    segments = list_ours(store, layout.segments_prefix(epoch), NUMBER, names)
    ledger.set_segments((int(path.rpartition("/")[2]) for path in segments), _find_scattered(store, plan, epoch))
    ledger._verdicts = read_file_verdicts(store, ledger._corrupt_verdicts)
    ledger._crash_verdicts = read_crash_verdicts(store)
    return ledger


def _find_scattered(store: Store, plan: Plan, epoch: int) -> Iterator[ScatterKey]:
    for path in list_ours(store, layout.scattered_prefix(epoch), f"[0-9]{{4,}}/{NUMBER}", scatter_names(plan)):
        stream, number = path.split("/")[-2:]
        yield ScatterKey(int(stream), int(number))


def _find_lost_lists(
    store: Store, epoch: int, ranges: Mapping[int, RangeReceipt], names: Iterable[str]
) -> Iterator[int]:
    lists = set(list_ours(store, layout.quarantine_prefix(epoch), ".*", names))
    for range_id, receipt in ranges.items():
        digest = receipt.quarantine_digest
        if digest and lists.isdisjoint(layout.quarantine_paths(epoch, range_id, digest)):
            yield range_id
