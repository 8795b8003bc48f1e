"""Reads the quarantine table row by row: it may have a row for every document of a corpus.

The table is read once for its sums, once for the dataset's digest, and once for what it says of each file. Held are a
few counts a file, and the rows of the files that are checked at the moment, in arrays.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple, cast

import orjson

from tokenization_worker.errors import TemporaryError
from tokenization_worker.output import layout
from tokenization_worker.readers.document_batch import Reason
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.verification.claims import FileClaim
from tokenization_worker.verification.facts import Unreadable
from tokenization_worker.verification.report import Fault, Finding

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

_CHUNK_BYTES = 1 << 20
_MOST_REASONS = 256
"""A byte holds which of them it is."""

_PATH = layout.QUARANTINE_TABLE


class Refusal(NamedTuple):
    """Position, line or row, and reason of an unusable document."""

    position: int
    record: int
    reason: str


class RefusedRows:
    """A file's rows of the table: 17 bytes each. Sent to the process that checks the file."""

    def __init__(self) -> None:
        self._positions = array("q")
        self._records = array("q")
        self._reasons = array("B")
        self._names: list[str] = []  # of the reasons, in the order in which they were met

    def append(self, row: Refusal) -> None:
        if row.reason not in self._names:
            self._names.append(row.reason)
        self._positions.append(row.position)
        self._records.append(row.record)
        self._reasons.append(self._names.index(row.reason))

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, number: int) -> Refusal:
        return Refusal(self._positions[number], self._records[number], self._names[self._reasons[number]])


@dataclass(frozen=True, slots=True)
class RefusedSums:
    """What the rows add up to; `killing`: by file, the positions of documents that kill their worker, in order."""

    rows: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    by_uri: Counter[str] = field(default_factory=Counter)
    killing: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def add_up_refused(store: Store) -> RefusedSums:
    """The sums; raises `Unreadable` where a row is not as rows are."""
    reasons, by_uri = Counter[str](), Counter[str]()
    killing: defaultdict[str, list[int]] = defaultdict(list)
    try:
        for row in _rows(store):
            uri, refusal = _parse(row)
            reasons[refusal.reason] += 1
            if len(reasons) > _MOST_REASONS:
                raise ValueError(f"{refusal.reason!r} is one reason too many")
            by_uri[uri] += 1
            if refusal.reason == Reason.KILLS_WORKER:
                killing[uri].append(refusal.position)
    except NotFound as error:
        raise Unreadable(Finding(Fault.TABLE_MISSING, "a table", "nothing", _PATH)) from error
    except (KeyError, OverflowError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise Unreadable(Finding(Fault.TABLE_CORRUPT, "all fields", problem, _PATH)) from error
    except (zstd.ZstdError, EOFError, ValueError, TypeError) as error:
        raise Unreadable(Finding(Fault.TABLE_CORRUPT, "zstd around JSON lines", str(error), _PATH)) from error
    return RefusedSums(by_uri.total(), reasons, by_uri, {uri: tuple(sorted(places)) for uri, places in killing.items()})


def refused_lines(store: Store) -> Iterator[bytes]:
    """The rows as the dataset's digest counts them, of a table that was added up before."""
    for row in _again(store):
        yield orjson.dumps(row) + b"\n"


def refused_by_file(store: Store, files: list[FileClaim]) -> Iterator[RefusedRows]:
    """The rows of each file, in order; a row behind those of later files, or of no file, is of none."""
    numbers = {claim.uri: claim.number for claim in files}
    rows = RefusedRows()
    number = 0
    for row in _again(store):
        uri, refusal = _parse(row)
        found = numbers.get(uri, -1)
        while number < found:
            yield rows
            rows, number = RefusedRows(), number + 1
        if number == found:
            rows.append(refusal)
    for _ in range(number, len(files)):
        yield rows
        rows = RefusedRows()


def _parse(row: dict[str, Any]) -> tuple[str, Refusal]:
    position, record = array("q", (int(row["position"]), int(row["record"])))  # raises OverflowError for no place
    return str(row["uri"]), Refusal(position, record, str(row["reason"]))


def _again(store: Store) -> Iterator[dict[str, Any]]:
    """The rows of a table that was right when it was added up."""
    try:
        yield from _rows(store)
    except (NotFound, zstd.ZstdError, EOFError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise TemporaryError(
            "StorageFailed",
            f"{store.uri}/{_PATH} changed while it was verified: {error}",
            next_step="start the same command again",
        ) from error


def _rows(store: Store) -> Iterator[dict[str, Any]]:
    entry = store.stat(_PATH)
    if entry is None:
        raise NotFound(_PATH)
    with zstd.open(cast(BinaryIO, _Stored(store, entry.size))) as lines:
        for line in lines:
            yield dict(orjson.loads(line))


class _Stored:
    """The table's bytes, some at a time."""

    def __init__(self, store: Store, size: int) -> None:
        self._store = store
        self._size = size
        self._position = 0
        self._chunk = b""

    def read(self, size: int = -1, /) -> bytes:
        if not self._chunk and self._position < self._size:
            end = min(self._size, self._position + _CHUNK_BYTES)
            self._chunk = self._store.read_range(_PATH, self._position, end)
            self._position = end
        size = len(self._chunk) if size < 0 else size
        part, self._chunk = self._chunk[:size], self._chunk[size:]
        return part
