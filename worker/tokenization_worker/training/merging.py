"""Trains byte-pair merges from counted pieces, exactly, in compiled code.

All pieces lie in one array of symbols with links. Of each pair of neighbours a hash table has the count and a run of
places in a pool. All places of a pair arise in the merge that makes its younger symbol, so a run never grows; a place
whose symbols have changed since is passed over. A heap has pairs by count: an entry whose count is out of date is
corrected when it comes up. What a merge changes is summed by neighbour in dense arrays before it reaches the table.

Of pairs with equal counts the one with the lowest (left, right) goes first, as in Hugging Face's trainer; or the one
with the largest texts, as the course CS336 has it.
"""

from __future__ import annotations

import numpy as np

from tokenization_worker.training.compiled import READ_AHEAD, Bytes, Ints, Longs, compiled, inlined
from tokenization_worker.training.pair_heap import Heap, Integer, Texts, add_text, byte_texts, rise, sink
from tokenization_worker.training.pieces import Pieces

MOST_BYTES = 2**31 - 1
"""Of all distinct pieces together: places are 32-bit numbers."""

_WORK = 4_000_000
"""Places that a step visits at least, unless it ends: about 0.1 s, after which a run looks at signals."""

_EMPTY = np.int64(-1)
_FIRST_PAIRS = 1 << 17
"""Slots: all pairs of bytes fill half of them."""

SYMBOL, AFTER, BEFORE, PIECE = range(4)
"""Columns of the cells i32[n, 4], one of each place: its symbol, the next and the previous place of its piece (-1:
none), its piece. A place is one line of the processor's cache: four arrays took twice the time."""
PAIR, COUNT, RUN, SIZE = range(4)
"""Columns of the table i64[n, 4] of pairs, one of each slot: the pair (left << 32 | right; -1: none), its count, where
its run begins in the pool, and the run's length. A slot is half a line of the processor's cache."""
Table = Longs
GAINED, LOST, PLACES, FILLED = range(4)
"""Columns of a side i64[n, 4], one line of each neighbour symbol: count gained, count lost, new places, and where the
run of its new pair is filled."""
USED, TOP, IN_HEAP, DONE, FLOOR, READ = range(6)
"""Of the numbers: pairs in the table, places in the pool, entries of the heap, merges that are made; the least count
that the heap takes; and what was read ahead. Most pairs never come up: they are pushed only when all above the floor
are merged."""
_FLOOR_STEP = 16


@inlined
def pair_of(left: Integer, right: Integer) -> np.int64:
    return (np.int64(left) << 32) | np.int64(right)


@inlined
def home_of(table: Table, pair: np.int64) -> np.uint64:
    """The first slot where a pair may be."""
    hashed = np.uint64(pair) * np.uint64(0x9E3779B97F4A7C15)
    return (hashed ^ (hashed >> np.uint64(32))) & np.uint64(len(table) - 1)


@inlined
def slot_of(table: Table, pair: np.int64) -> np.int64:
    """The slot of the pair, or the free one for it."""
    mask = np.uint64(len(table) - 1)
    slot = home_of(table, pair)
    while table[slot, PAIR] != _EMPTY and table[slot, PAIR] != pair:
        slot = (slot + np.uint64(1)) & mask
    return np.int64(slot)


@compiled
def empty_table(slots: int) -> Table:
    """A table without pairs."""
    table = np.zeros((slots, 4), np.int64)
    table[:, PAIR] = _EMPTY
    return table


@compiled
def widen_table(table: Table) -> Table:
    """The same pairs in twice the slots."""
    wider = empty_table(2 * len(table))
    for old in range(len(table)):
        if table[old, PAIR] != _EMPTY:
            new = slot_of(wider, table[old, PAIR])
            for column in range(4):
                wider[new, column] = table[old, column]
    return wider


@compiled
def link(text: Bytes, ends: Longs, ids: Ints, cells: Ints) -> None:
    """Fill in the cells of all pieces."""
    start = 0
    for piece in range(len(ends)):
        end = ends[piece]
        for place in range(start, end):
            cells[place, SYMBOL] = ids[text[place]]
            cells[place, AFTER] = place + 1 if place + 1 < end else -1
            cells[place, BEFORE] = place - 1 if place > start else -1
            cells[place, PIECE] = piece
        start = end


@compiled
def collect_pairs(cells: Ints, weights: Longs, table: Table, numbers: Longs, texts: Texts) -> tuple[Table, Ints, Heap]:
    """Count the pairs of neighbours, which are bytes yet; the table, the pool of places, and the heap."""
    pair_counts, starts = np.zeros(1 << 16, np.int64), np.zeros((1 << 16) + 1, np.int64)
    for place in range(len(cells)):
        if cells[place, AFTER] >= 0:
            number = (cells[place, SYMBOL] << 8) | cells[cells[place, AFTER], SYMBOL]
            pair_counts[number] += weights[cells[place, PIECE]]
            starts[number + 1] += 1
    for number in range(1 << 16):
        starts[number + 1] += starts[number]
    ends = starts[:-1].copy()
    numbers[TOP] = starts[-1]
    pool = np.empty(3 * numbers[TOP] + 16, np.int32)  # what is never touched takes no memory
    for place in range(len(cells)):
        if cells[place, AFTER] >= 0:
            number = (cells[place, SYMBOL] << 8) | cells[cells[place, AFTER], SYMBOL]
            pool[ends[number]] = place
            ends[number] += 1
    for number in range(1 << 16):
        if ends[number] > starts[number]:
            pair = pair_of(number >> 8, number & 0xFF)
            slot = slot_of(table, pair)
            table[slot, PAIR], table[slot, COUNT], table[slot, RUN] = pair, pair_counts[number], starts[number]
            table[slot, SIZE] = ends[number] - starts[number]
            numbers[USED] += 1
    numbers[FLOOR] = max(np.int64(1), pair_counts.max() // _FLOOR_STEP)
    return table, pool, fill_heap(table, numbers, texts)


@compiled
def fill_heap(table: Table, numbers: Longs, texts: Texts) -> Heap:
    """A heap of all pairs with counts from the floor on."""
    size = 0
    for slot in range(len(table)):
        if table[slot, PAIR] != _EMPTY and table[slot, COUNT] >= numbers[FLOOR]:
            size += 1
    heap = np.zeros(2 * size + 1024, np.int64), np.zeros(2 * size + 1024, np.int64)
    for slot in range(len(table)):
        if table[slot, PAIR] != _EMPTY and table[slot, COUNT] >= numbers[FLOOR]:
            push(heap, numbers, table[slot, COUNT], table[slot, PAIR], texts)
    return heap


@inlined
def push(heap: Heap, numbers: Longs, count: Integer, pair: np.int64, texts: Texts) -> None:
    place = numbers[IN_HEAP]
    heap[0][place], heap[1][place] = count, pair
    numbers[IN_HEAP] = place + 1
    rise(heap, place, texts)


@compiled
def book(
    side: Longs,
    seen: Ints,
    n_seen: int,
    fixed: Integer,
    new: Integer,
    is_left: bool,
    table: Table,
    heap: Heap,
    numbers: Longs,
    texts: Texts,
) -> None:
    """Write what one merge has changed for its neighbours on one side, those of `seen`, into table and heap.

    `fixed`: the symbol that stood beside them before; `new`: the one that stands there now. Makes room for the places
    of each new pair.
    """
    read = np.int64(0)
    for k in range(n_seen):
        other = seen[k]
        if k % READ_AHEAD == 0:
            for ahead in range(k, min(k + READ_AHEAD, n_seen)):
                old = pair_of(seen[ahead], fixed) if is_left else pair_of(fixed, seen[ahead])
                pair = pair_of(seen[ahead], new) if is_left else pair_of(new, seen[ahead])
                read += table[home_of(table, old), PAIR] + table[home_of(table, pair), PAIR]
        change = side[other]
        if change[LOST]:
            old = pair_of(other, fixed) if is_left else pair_of(fixed, other)
            table[slot_of(table, old), COUNT] -= change[LOST]
        if change[PLACES]:
            pair = pair_of(other, new) if is_left else pair_of(new, other)
            slot = slot_of(table, pair)
            table[slot, PAIR], table[slot, COUNT] = pair, change[GAINED]
            table[slot, RUN], table[slot, SIZE] = numbers[TOP], change[PLACES]
            numbers[USED] += 1
            change[FILLED] = numbers[TOP]
            numbers[TOP] += change[PLACES]
            if change[GAINED] >= numbers[FLOOR]:
                push(heap, numbers, change[GAINED], pair, texts)
        change[GAINED], change[LOST], change[PLACES] = 0, 0, 0
    numbers[READ] = read


@compiled
def make_merges(
    cells: Ints,
    weights: Longs,
    table: Table,
    pool: Ints,
    heap: Heap,
    left_side: Longs,
    right_side: Longs,
    lefts: Ints,
    rights: Ints,
    numbers: Longs,
    merges: Ints,
    merge_counts: Longs,
    first_id: int,
    work: int,
    texts: Texts,
) -> tuple[Table, Ints, Heap, Texts]:
    """Make merges until `work` places were visited, all are made, or no pair is left."""
    while work > 0 and numbers[DONE] < len(merges):
        if numbers[IN_HEAP] == 0:
            if numbers[FLOOR] == 1:
                break
            numbers[FLOOR] = max(np.int64(1), numbers[FLOOR] // _FLOOR_STEP)
            heap = fill_heap(table, numbers, texts)
            work -= len(table)
            continue
        count, pair = heap[0][0], heap[1][0]
        slot = slot_of(table, pair)
        if table[slot, COUNT] != count:  # it has fewer since
            if table[slot, COUNT] >= numbers[FLOOR]:
                heap[0][0] = table[slot, COUNT]
            else:
                numbers[IN_HEAP] -= 1
                heap[0][0], heap[1][0] = heap[0][numbers[IN_HEAP]], heap[1][numbers[IN_HEAP]]
            sink(heap, numbers[IN_HEAP], texts)
            work -= 1
            continue
        a, b = np.int32(pair >> 32), np.int32(pair & 0xFFFFFFFF)
        merges[numbers[DONE], 0], merges[numbers[DONE], 1] = a, b
        merge_counts[numbers[DONE]] = count
        new = np.int32(first_id + numbers[DONE])
        numbers[DONE] += 1
        if len(texts[1]) > 0:
            texts = add_text(texts, a, b, new)
        run, size = table[slot, RUN], table[slot, SIZE]
        work -= size
        n_left, n_right, kept, more = 0, 0, 0, 0
        read = np.int64(0)
        for k in range(size):
            if k % READ_AHEAD == 0:
                for ahead in range(k, min(k + READ_AHEAD, size)):
                    read += cells[pool[run + ahead], SYMBOL]
                for ahead in range(k, min(k + READ_AHEAD, size)):
                    read += weights[cells[pool[run + ahead], PIECE]]
            i = pool[run + k]
            if cells[i, SYMBOL] != a:
                continue
            j = cells[i, AFTER]
            if j < 0 or cells[j, SYMBOL] != b:
                continue
            weight = weights[cells[i, PIECE]]
            left, right = cells[i, BEFORE], cells[j, AFTER]
            if left >= 0:
                x = cells[left, SYMBOL]
                if left_side[x, PLACES] == 0:  # seen for the first time
                    lefts[n_left] = x
                    n_left += 1
                if x == new:  # in "abab" the first merge has counted (new, a), and there is no (b, a) any more
                    right_side[a, GAINED] -= weight
                    right_side[a, PLACES] -= 1
                    more -= 1
                else:
                    left_side[x, LOST] += weight
                left_side[x, GAINED] += weight
                left_side[x, PLACES] += 1
                more += 1
            if right >= 0:
                y = cells[right, SYMBOL]
                if right_side[y, LOST] == 0:
                    rights[n_right] = y
                    n_right += 1
                right_side[y, LOST] += weight
                right_side[y, GAINED] += weight
                right_side[y, PLACES] += 1
                more += 1
                cells[right, BEFORE] = i
            cells[i, SYMBOL] = new
            cells[j, SYMBOL] = -1
            cells[i, AFTER] = right
            pool[run + kept] = i
            kept += 1
        numbers[READ] = read
        if numbers[TOP] + more > len(pool):
            wider = np.empty(max(numbers[TOP] + more, len(pool) + len(pool) // 4), np.int32)
            wider[: numbers[TOP]] = pool[: numbers[TOP]]
            pool = wider
        while 2 * (numbers[USED] + n_left + n_right) > len(table):
            table = widen_table(table)
        if numbers[IN_HEAP] + n_left + n_right > len(heap[0]):
            room = 2 * len(heap[0]) + n_left + n_right
            wider_heap = np.zeros(room, np.int64), np.zeros(room, np.int64)
            wider_heap[0][: numbers[IN_HEAP]] = heap[0][: numbers[IN_HEAP]]
            wider_heap[1][: numbers[IN_HEAP]] = heap[1][: numbers[IN_HEAP]]
            heap = wider_heap
        book(left_side, lefts, n_left, a, new, True, table, heap, numbers, texts)
        book(right_side, rights, n_right, b, new, False, table, heap, numbers, texts)
        for k in range(kept):
            i = pool[run + k]
            left, right = cells[i, BEFORE], cells[i, AFTER]
            if left >= 0:
                x = cells[left, SYMBOL]
                pool[left_side[x, FILLED]] = left
                left_side[x, FILLED] += 1
            if right >= 0 and cells[right, SYMBOL] != new:  # that one is on the left side, as (new, new)
                y = cells[right, SYMBOL]
                pool[right_side[y, FILLED]] = i
                right_side[y, FILLED] += 1
        table[slot_of(table, pair), COUNT] = 0
    return table, pool, heap, texts


def memory_needed(pieces: Pieces) -> int:
    """About how many bytes a training on these pieces takes at its peak."""
    return 40 * len(pieces.text) + 40 * len(pieces) + (200 << 20)


class Trainer:
    """Merges of `pieces` while they are made: `step` until `is_finished`.

    `byte_ids` i32[256]: the symbol of each byte; merge k makes the symbol 256 + k. `largest_text`: of pairs with equal
    counts the one with the largest texts goes first, and not the one with the lowest symbols.
    """

    def __init__(self, pieces: Pieces, byte_ids: Ints, n_merges: int, *, largest_text: bool = False) -> None:
        size, first_id = len(pieces.text), len(byte_ids)
        if size > MOST_BYTES:
            raise ValueError(f"the pieces have {size:,} bytes, at most {MOST_BYTES:,} can be trained on")
        self._first_id = first_id
        self._numbers = np.zeros(6, np.int64)
        self._cells = np.empty((size, 4), np.int32)
        self._weights = pieces.counts
        link(pieces.text, pieces.ends, byte_ids, self._cells)
        table = empty_table(_FIRST_PAIRS)
        self._texts = byte_texts(byte_ids, first_id + n_merges if largest_text else 0)
        self._table, self._pool, self._heap = collect_pairs(
            self._cells, self._weights, table, self._numbers, self._texts
        )
        symbols = first_id + n_merges
        self._left, self._right = np.zeros((symbols, 4), np.int64), np.zeros((symbols, 4), np.int64)
        self._lefts, self._rights = np.zeros(symbols, np.int32), np.zeros(symbols, np.int32)
        self._merges = np.zeros((n_merges, 2), np.int32)
        self._counts = np.zeros(n_merges, np.int64)

    @property
    def merges(self) -> Ints:
        """The pairs that are merged so far, i32[n, 2], in order."""
        return self._merges[: self._numbers[DONE]]

    @property
    def counts(self) -> Longs:
        """How often each of `merges` stood in the text when it was made, i64[n]."""
        return self._counts[: self._numbers[DONE]]

    @property
    def is_finished(self) -> bool:
        """Whether all merges are made, or no pair is left."""
        _, _, in_heap, done, floor, _ = self._numbers.tolist()
        return bool(done == len(self._merges) or (in_heap == 0 and floor == 1))

    def step(self) -> None:
        """Make some merges more."""
        self._table, self._pool, self._heap, self._texts = make_merges(
            self._cells,
            self._weights,
            self._table,
            self._pool,
            self._heap,
            self._left,
            self._right,
            self._lefts,
            self._rights,
            self._numbers,
            self._merges,
            self._counts,
            self._first_id,
            _WORK,
            self._texts,
        )
