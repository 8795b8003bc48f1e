"""Checks that parts tile the rows of a shard: pure.

A row begins with a part, and each part begins where the one before it ends, in the same row or at the start of the
next. What is left of a row is padding: of the last row of its scope alone. A document's parts follow one another, and
documents stand in source order; where rows are shuffled or packed all this holds within a row, and where documents are
shuffled, all but their order. What else a packed row must hold, `packing` checks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.verification.claims import SequenceClaim, Shuffled
from tokenization_worker.verification.report import Fault
from tokenization_worker.verification.shards.parts import PART, Part, PartArray, describe_part, part_at

_PARTS_AT_ONCE = 1 << 16
"""To bound the memory that a comparison needs: about 80 bytes each."""


class TilingFault(NamedTuple):
    """What is wrong with part `number`; that is the number of parts where one is missing at the end."""

    number: int
    fault: Fault
    expected: str
    found: str


def find_tiling_fault(parts: PartArray, n_rows: int, sequence: SequenceClaim) -> TilingFault | None:
    """The first part that cannot be where it is. The offset of the first one is left to `find_fault_between`."""
    if not len(parts) or (parts["row"][0], parts["start"][0]) != (0, 0):
        found = describe_part(part_at(parts, 0)) if len(parts) else "none"
        return TilingFault(0, Fault.PARTS_WRONG, "a part at the first token of row 0", found)
    for at in range(0, len(parts), _PARTS_AT_ONCE):
        first = max(0, at - 1)  # each is compared with the one before
        fault = _find_fault(parts[first : at + _PARTS_AT_ONCE], n_rows, sequence)
        if fault is not None:
            return fault._replace(number=first + fault.number)
    last_row = int(parts["row"][-1])
    if last_row == n_rows - 1:
        return None
    expected, found = f"parts in all {n_rows:,} rows", f"none behind row {last_row:,}"
    return TilingFault(len(parts), Fault.PARTS_WRONG, expected, found)


def find_fault_between(before: Part | None, after: Part, sequence: SequenceClaim) -> TilingFault | None:
    """The same of the last part of a shard and the first one of the next. None: `after` is the first of its stream."""
    if sequence.are_rows_apart:
        return None
    if before is None:
        before, after = _NO_DOCUMENT._replace(length=sequence.length), after._replace(file=after.file + 1)
    edges = [before._replace(row=0), after._replace(row=1)]
    return _find_fault(np.array([tuple(edge) for edge in edges], dtype=PART), 2, sequence)


_NO_DOCUMENT = Part(0, 0, 0, 0, 0, 0)


def _find_fault(parts: PartArray, n_rows: int, sequence: SequenceClaim) -> TilingFault | None:
    names = ("file", "row", "start", "length", "offset")
    file, row, start, length, offset = (parts[name].astype(np.int64) for name in names)
    position, ends, size = parts["position"], start + length, sequence.length
    is_new_row, is_new_file = row[1:] != row[:-1], file[1:] != file[:-1]
    is_same = ~is_new_file & (position[1:] == position[:-1])
    is_next = np.where(is_new_row, (row[1:] == row[:-1] + 1) & (start[1:] == 0), start[1:] == ends[:-1])
    is_later = (file[1:] > file[:-1]) | (~is_new_file & (position[1:] > position[:-1]))
    is_padded = is_new_row & (ends[:-1] < size)
    is_apart = is_new_row & sequence.are_rows_apart  # nothing is known of rows beside each other
    is_piece = is_apart | (sequence.packing is not None)  # may be one of several, wherever it stands
    scope = "file" if sequence.by_file else "stream"
    rules = (
        (
            Fault.PARTS_WRONG,
            (length < 1) | (ends > size) | (row >= n_rows),
            f"a part inside of one of {n_rows:,} rows of {size:,} tokens",
        ),
        (Fault.PARTS_WRONG, _second(~is_next), "a part where the one before it ends, or at the start of the next row"),
        (
            Fault.PADDING_WRONG,
            _second((is_padded & ~is_new_file if sequence.by_file else is_padded) & ~is_apart),
            f"no padding in the row before: it is not the last one of its {scope}",
        ),
        (
            Fault.ROWS_DIFFER,
            _second(is_new_file & (start[1:] > 0) & sequence.by_file),
            "the first document of a file at the start of a row",
        ),
        (
            Fault.PARTS_WRONG,
            _second(~is_same & ~is_later & ~is_apart & (sequence.shuffled is not Shuffled.DOCUMENTS)),
            "a document that is behind the one before in the source",
        ),
        (Fault.PARTS_WRONG, _second(is_same & ~is_new_row), "one part of a document in a row"),
        (
            Fault.PARTS_WRONG,
            _second((offset[1:] != np.where(is_same, offset[:-1] + length[:-1], 0)) & ~is_piece),
            "the offset at which the document's part before ends, or 0",
        ),
    )
    wrong = [(int(np.argmax(is_wrong)), fault, words) for fault, is_wrong, words in rules if is_wrong.any()]
    if not wrong:
        return None
    number, fault, words = min(wrong, key=lambda item: item[0])  # of several at one part: the first rule
    return TilingFault(number, fault, words, describe_part(part_at(parts, number)))


def _second(is_wrong: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """What is wrong between two parts, said of the second one."""
    return np.concatenate([[False], is_wrong])
