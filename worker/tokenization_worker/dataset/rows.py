"""The rows of a split, by number: tokens, parts and masks.

    rows = dataset["train"].rows
    len(rows)                    # rows
    rows[7]                      # their tokens, u16 or u32[length]; rows[7:9] is [2, length]
    rows.segment_ids(7)          # which document of the row each token is of
    rows.examples()              # what PyTorch's DataLoader and grain take as it is
    rows.order(seed=1, epoch=0)  # the numbers of the rows, shuffled; any stretch of it at once

A pickle of them names the dataset, and whoever loads it opens that again: a kilobyte or two for a loader process. From
a far store a row is one read of its bytes, and one of parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import overload

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.dataset.numbers import require_whole
from tokenization_worker.dataset.reopening import Reopening
from tokenization_worker.dataset.token_stream import Stream
from tokenization_worker.formats.base import TokenArray
from tokenization_worker.sequences import masks
from tokenization_worker.sequences.parts import PartArray
from tokenization_worker.sequences.permutation import permuted

_EPOCHS = 2**31 - 1
"""Seeds are so far apart that no epoch of one is an epoch of the next."""

_ORDER_BLOCK = 4096
"""Numbers of an order that are computed at once."""


class Rows:
    """The rows of one split. Threads may share it.

    `stream`, `start`, `count`: the rows are `count` times `length` tokens from token `start` of the stream on.
    `reopening`: how another process gets them.
    """

    def __init__(
        self,
        split: str,
        stream: Stream,
        start: int,
        count: int,
        length: int,
        *,
        is_delimiter_learned: bool,
        reopening: Reopening[Rows],
    ) -> None:
        self.split = split
        self.length = length
        self._stream = stream
        self._start = start
        self._count = count
        self._is_delimiter_learned = is_delimiter_learned
        self._reopening = reopening

    def __reduce__(self) -> Reopening[Rows]:
        return self._reopening

    def __repr__(self) -> str:
        return f"Rows({self.split!r}, rows={len(self)}, length={self.length})"

    def __len__(self) -> int:
        return self._count

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        return self._stream.dtype

    @overload
    def __getitem__(self, wanted: int) -> TokenArray: ...

    @overload
    def __getitem__(self, wanted: slice) -> TokenArray: ...

    def __getitem__(self, wanted: int | slice) -> TokenArray:
        """The tokens of a row, [length], or of a slice of rows, [n, length]: a new array. Negative numbers count from
        the end; raises `IndexError` for a row that is not there."""
        if isinstance(wanted, slice):
            return self._slice(range(*wanted.indices(self._count)))
        number = self._number(wanted, f"rows of {self.split!r}", "a whole number or a slice")
        first = self._start + number * self.length
        return self._stream.tokens(first, first + self.length)

    def _slice(self, numbers: range) -> TokenArray:
        if not numbers:
            return np.empty((0, self.length), dtype=self.dtype)
        first, last = min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1])
        start = self._start + first * self.length
        tokens = self._stream.tokens(start, start + (last + 1 - first) * self.length)
        return tokens.reshape(-1, self.length)[:: numbers.step]

    def _number(self, wanted: int, name: str = "row", expected: str = "a whole number") -> int:
        number = require_whole(name, wanted, expected)
        if not -self._count <= number < self._count:
            raise IndexError(
                f"row {number:,}: expected -{self._count:,} <= row < {self._count:,}, the rows of split {self.split!r}"
            )
        return number % self._count

    def parts(self, row: int) -> PartArray:
        """The parts of a row, in order, as docs/layout.md has them: their field `row` counts in the row's shard."""
        token = self._start + self._number(row) * self.length
        number = self._stream.shard_number(token)
        first = (token - self._stream.shards[number].start) // self.length
        return self._stream.read_parts(number, first)

    def segment_ids(self, row: int) -> NDArray[np.int32]:
        """i32[length]: 1 for the tokens of the row's first document, 2 for those of its second; 0 for padding."""
        return masks.segment_ids(self.parts(row), self.length)

    def positions(self, row: int) -> NDArray[np.int32]:
        """i32[length]: each token's place in its part of the row, from 0; 0 for padding."""
        return masks.positions(self.parts(row), self.length)

    def cu_seqlens(self, row: int) -> NDArray[np.int32]:
        """i32[parts + 1]: where each part of the row ends, from 0, for attention over packed sequences. Padding is not
        counted."""
        return masks.cu_seqlens(self.parts(row))

    def mask(self, row: int) -> NDArray[np.bool_]:
        """bool[length, length]: [q, k] is whether token q may attend to token k: itself, and those before it in its
        part. A token of padding attends to itself alone."""
        return masks.attention_mask(self.parts(row), self.length)

    def loss_mask(self, row: int) -> NDArray[np.bool_]:
        """bool[length - 1]: whether the prediction of token t + 1 from token t counts: inside of a part, never of
        padding. A delimiter that stands before documents counts also as the end of the one before it."""
        return self._loss_mask(self.parts(row))

    def _loss_mask(self, parts: PartArray) -> NDArray[np.bool_]:
        return masks.loss_mask(parts, self.length, is_delimiter_learned=self._is_delimiter_learned)

    def example(self, row: int) -> dict[str, NDArray[np.generic]]:
        """What a training step takes of a row: `tokens` i32[length], `segment_ids`, `positions` and `loss_mask`."""
        parts = self.parts(row)
        return {
            "tokens": self[row].astype(np.int32),
            "segment_ids": masks.segment_ids(parts, self.length),
            "positions": masks.positions(parts, self.length),
            "loss_mask": self._loss_mask(parts),
        }

    def examples(self) -> Examples:
        """The rows as training examples, for PyTorch's DataLoader or grain."""
        return Examples(self)

    def order(self, *, seed: int, epoch: int, rank: int = 0, world: int = 1) -> Order:
        """The numbers of the rows in a random order, of which process `rank` of `world` takes every `world`-th.

        All processes get equally many: what is left over at the end is in no process's part of this epoch. The order
        depends on these numbers alone, so a run that was stopped after n rows goes on with `order[n:]`.
        """
        seed, epoch = _require_at_least("seed", seed, 0), _require_at_least("epoch", epoch, 0)
        rank, world = _require_at_least("rank", rank, 0), _require_at_least("world", world, 1)
        if rank >= world:
            raise ValueError(f"rank: found {rank}, expected less than world, {world}")
        places = range(rank, self._count - self._count % world, world)
        return Order(self._count, seed, epoch, places)


def _require_at_least(name: str, value: object, least: int) -> int:
    number = require_whole(name, value)
    if number < least:
        raise ValueError(f"{name}: found {number}, expected {least} or more")
    return number


class Examples:
    """`[i]` is `rows.example(i)`; a data loader takes it as a dataset."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> dict[str, NDArray[np.generic]]:
        return self.rows.example(row)

    def __repr__(self) -> str:
        return f"Examples({self.rows!r})"


class Order:
    """A shuffled order of row numbers. `order[a:b]` is an order, too; nothing is computed before it is asked for.

    `places`: those of its numbers in the order of all `rows` rows that `seed` and `epoch` give.
    """

    def __init__(self, rows: int, seed: int, epoch: int, places: range) -> None:
        self._rows = rows
        self._seed = seed
        self._epoch = epoch
        self._places = places

    def __repr__(self) -> str:
        return f"Order(rows={self._rows}, seed={self._seed}, epoch={self._epoch}, places={self._places})"

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, wanted: int) -> int: ...

    @overload
    def __getitem__(self, wanted: slice) -> Order: ...

    def __getitem__(self, wanted: int | slice) -> int | Order:
        if isinstance(wanted, slice):
            return Order(self._rows, self._seed, self._epoch, self._places[wanted])
        wanted = require_whole("an order", wanted, "a whole number or a slice")
        try:
            place = self._places[wanted]
        except IndexError as error:
            size = len(self)
            raise IndexError(f"place {wanted:,} of an order: expected -{size:,} <= place < {size:,}") from error
        return int(self._compute(range(place, place + 1))[0])

    def __iter__(self) -> Iterator[int]:
        for start in range(0, len(self._places), _ORDER_BLOCK):
            yield from self._compute(self._places[start : start + _ORDER_BLOCK]).tolist()

    def __array__(self, dtype: np.dtype[np.generic] | None = None, copy: bool | None = None) -> NDArray[np.generic]:
        del copy  # it is new in any case
        numbers = self._compute(self._places)
        return numbers if dtype is None else numbers.astype(dtype)

    def _compute(self, places: range) -> NDArray[np.int64]:
        numbers = np.arange(places.start, places.stop, places.step, dtype=np.int64)
        return permuted(numbers, self._rows, (self._seed * _EPOCHS + self._epoch) % 2**64)
