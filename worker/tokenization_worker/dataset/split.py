"""One split of a dataset as an array of tokens, and as documents. It reads; what a shard is, `token_stream` knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import overload

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.api.data import Delimiters
from tokenization_worker.dataset.groups import Groups
from tokenization_worker.dataset.numbers import require_whole
from tokenization_worker.dataset.reopening import Reopening
from tokenization_worker.dataset.rows import Rows
from tokenization_worker.dataset.shard import Shard
from tokenization_worker.dataset.token_stream import Stream
from tokenization_worker.formats.base import TokenArray


class Split:
    """One split's tokens, numbered from 0.

    `split[a:b]` is what numpy gives for `np.asarray(split)[a:b]`, and reads no other tokens. `documents` is the number
    of those that begin in it. `row_length`: 0 where the tokens are one run. `groups`: where groups are in paths, the
    part of each, in order: `split.groups["code"]`; `group`: of which one this is the part, "" of a whole split.
    `reopening`: how another process gets it.
    """

    def __init__(
        self,
        name: str,
        documents: int,
        stream: Stream,
        shards: tuple[Shard, ...],
        delimiters: Delimiters,
        reopening: Reopening[Split],
        row_length: int,
        group: str = "",
        groups: Mapping[str, Split] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self.group = group
        self.groups = Groups(name, groups)
        self.shards = shards
        self.documents = documents
        self.row_length = row_length
        self.stream = stream
        self.start = shards[0].start if shards else 0
        self._length = shards[-1].end - self.start if shards else 0
        self._reopening = reopening
        self._rows: Rows | None = None
        self._text = delimiters.inside
        self._is_begin_learned = delimiters.begin is not None and delimiters.end is None

    def __reduce__(self) -> Reopening[Split]:
        return self._reopening

    def __len__(self) -> int:
        """The number of tokens."""
        return self._length

    def __repr__(self) -> str:
        group = f", group={self.group!r}" if self.group else ""
        return f"Split({self.name!r}{group}, tokens={len(self)}, documents={self.documents}, shards={len(self.shards)})"

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        return self.stream.dtype

    @property
    def rows(self) -> Rows:
        """Its rows; raises `TypeError` where the dataset was made without `output.sequence`."""
        if self._rows is None:  # `cached_property` has a lock, which a fork could find held
            self._rows = self._make_rows()
        return self._rows

    def _make_rows(self) -> Rows:
        length = self.row_length
        if not length:
            raise TypeError(
                f"split {self.name!r} has no rows: its tokens are one run; make the dataset with output.sequence"
            )
        count = self._length // length
        return Rows(
            self.name,
            self.stream,
            self.start,
            count,
            length,
            is_delimiter_learned=self._is_begin_learned,
            reopening=(_reopen_rows, self._reopening),
        )

    def tokens(self, start: int, end: int) -> TokenArray:
        """Tokens [start, end) as a new array, across shards; raises `IndexError` outside of the split."""
        if type(start) is not int or type(end) is not int:
            start, end = require_whole("start", start), require_whole("end", end)
        if not 0 <= start <= end <= self._length:
            raise IndexError(
                f"tokens [{start:,}, {end:,}): expected 0 <= start <= end <= {len(self):,}, the length of split "
                f"{self.name!r}"
            )
        return self.stream.tokens(self.start + start, self.start + end)

    @overload
    def __getitem__(self, wanted: int) -> np.unsignedinteger: ...

    @overload
    def __getitem__(self, wanted: slice) -> TokenArray: ...

    def __getitem__(self, wanted: int | slice) -> np.unsignedinteger | TokenArray:
        """A token, or a slice of them as a new array; negative numbers count from the end."""
        if isinstance(wanted, slice):
            return self._slice(range(*wanted.indices(self._length)))
        number = require_whole(f"split {self.name!r}", wanted, "a whole number or a slice")
        if not -self._length <= number < self._length:
            raise IndexError(
                f"token {number:,}: expected -{len(self):,} <= token < {len(self):,}, the length of split {self.name!r}"
            )
        number %= self._length
        token: np.unsignedinteger = self.tokens(number, number + 1)[0]
        return token

    def _slice(self, numbers: range) -> TokenArray:
        if not numbers:
            return np.empty(0, dtype=self.dtype)
        first, last = min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1])
        return self.tokens(first, last + 1)[:: numbers.step]

    def __array__(self, dtype: np.dtype[np.generic] | None = None, copy: bool | None = None) -> NDArray[np.generic]:
        """All tokens, for numpy: of a single local shard its read-only memory map, else a new array in memory."""
        as_it_is = dtype is None or dtype == self.dtype
        if len(self.shards) == 1 and as_it_is and not copy:
            return np.asarray(self.shards[0].open())
        if copy is False:
            raise ValueError(f"split {self.name!r} becomes one array of {dtype or self.dtype} only as a copy")
        tokens = self.tokens(0, self._length)
        return tokens if dtype is None else tokens.astype(dtype, copy=False)

    def read_documents(self, *, with_delimiter: bool = False) -> Iterator[TokenArray]:
        """The tokens of each document that begins in the split, in order, each a new array.

        Documents are whole also where they straddle shards, and the last one also where it goes on in the next split:
        over all splits every document comes once. One without tokens (empty text, no delimiter) is in no shard.
        Memory: a block of 2 or 4 MB, or the longest document. Raises `TypeError` where rows are shuffled or packed.
        """
        if self.stream.are_pieces_apart:
            raise TypeError(
                f"split {self.name!r} has shuffled or packed rows, where pieces of a document stand apart: read .rows"
            )
        for tokens in self.stream.documents(self.start, self.start + self._length):
            yield tokens if with_delimiter else tokens[self._text].copy()


def _reopen_rows(open_split: Callable[..., Split], arguments: tuple[object, ...]) -> Rows:
    return open_split(*arguments).rows
