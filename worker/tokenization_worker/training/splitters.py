"""Cuts UTF-8 into the pieces of the GPT-2 and cl100k patterns, in compiled code.

Each splitter returns the end of the piece that begins at byte `i` of `data` u8[n]; the text ends at `end`. `classes`
u8[0x110000] has the class of each code point, by the library that will encode. `patterns` holds the splitters against
that library before they are used.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.training.compiled import Bytes, compiled, inlined

OTHER, LETTER, NUMBER, SPACE, BREAK = range(5)
"""Classes of code points. `BREAK`: CR and LF, which are white space, too."""

Classes = NDArray[np.uint8]


@inlined
def class_at(data: Bytes, i: int, classes: Classes) -> tuple[int, int]:
    """Class and size in bytes of the character at byte i."""
    first = data[i]
    if first < 0x80:
        return classes[first], 1
    if first < 0xE0:
        return classes[((first & 0x1F) << 6) | (data[i + 1] & 0x3F)], 2
    if first < 0xF0:
        return classes[((first & 0x0F) << 12) | ((data[i + 1] & 0x3F) << 6) | (data[i + 2] & 0x3F)], 3
    high = ((first & 7) << 18) | ((data[i + 1] & 0x3F) << 12)
    return classes[high | ((data[i + 2] & 0x3F) << 6) | (data[i + 3] & 0x3F)], 4


@inlined
def run_end(data: Bytes, i: int, end: int, classes: Classes, wanted: int) -> int:
    """The end of the characters of one class."""
    while i < end:
        kind, size = class_at(data, i, classes)
        if kind != wanted:
            return i
        i += size
    return i


@inlined
def contraction_end(data: Bytes, i: int, end: int) -> int:
    """The end of 's 't 'm 'd 're 've 'll at an apostrophe, or i."""
    if i + 1 < end:
        c = data[i + 1]
        if c == 115 or c == 116 or c == 109 or c == 100:  # s t m d
            return i + 2
        if i + 2 < end:
            d = data[i + 2]
            if (c == 114 and d == 101) or (c == 118 and d == 101) or (c == 108 and d == 108):  # re ve ll
                return i + 3
    return i


@compiled
def next_gpt2(data: Bytes, i: int, end: int, classes: Classes) -> int:
    """The end of the piece of GPT-2's pattern that begins at byte i."""
    first = data[i]
    if first == 39:  # an apostrophe
        j = contraction_end(data, i, end)
        if j > i:
            return j
    kind, size = class_at(data, i, classes)
    if kind < SPACE:
        return run_end(data, i + size, end, classes, kind)
    if first == 32 and i + 1 < end:  # a blank belongs to what follows it
        kind, size = class_at(data, i + 1, classes)
        if kind < SPACE:
            return run_end(data, i + 1 + size, end, classes, kind)
    last = j = i
    while j < end:
        kind, size = class_at(data, j, classes)
        if kind < SPACE:
            break
        last = j
        j += size
    return j if j == end or last == i else last  # the last white space belongs to what follows it


@inlined
def lower_at(data: Bytes, i: int, end: int) -> tuple[int, int]:
    """The lower-case ASCII letter at byte i, and its size; 0: another character. The long s is an s."""
    c = data[i]
    if 65 <= c <= 90:
        return c + 32, 1
    if c < 0x80:
        return c, 1
    if c == 0xC5 and i + 1 < end and data[i + 1] == 0xBF:
        return 115, 2
    return 0, 1


@inlined
def any_contraction_end(data: Bytes, i: int, end: int) -> int:
    """As `contraction_end`, in any case."""
    if i + 1 < end:
        c, n = lower_at(data, i + 1, end)
        if c == 115 or c == 116 or c == 109 or c == 100:
            return i + 1 + n
        if i + 1 + n < end:
            d, m = lower_at(data, i + 1 + n, end)
            if (c == 114 and d == 101) or (c == 118 and d == 101) or (c == 108 and d == 108):
                return i + 1 + n + m
    return i


@compiled
def next_cl100k(data: Bytes, i: int, end: int, classes: Classes) -> int:
    """The end of the piece of cl100k's pattern that begins at byte i."""
    first = data[i]
    if first == 39:
        j = any_contraction_end(data, i, end)
        if j > i:
            return j
    kind, size = class_at(data, i, classes)
    if kind == LETTER:
        return run_end(data, i + size, end, classes, LETTER)
    if kind == NUMBER:  # three at most
        j = i + size
        for _ in range(2):
            if j < end:
                kind, size = class_at(data, j, classes)
                if kind == NUMBER:
                    j += size
                else:
                    break
        return j
    if kind != BREAK and i + size < end:  # one character belongs to the letters behind it
        kind_behind, size_behind = class_at(data, i + size, classes)
        if kind_behind == LETTER:
            return run_end(data, i + size + size_behind, end, classes, LETTER)
    j = i
    if first == 32 and i + 1 < end:
        kind_behind, _ = class_at(data, i + 1, classes)
        if kind_behind == OTHER:
            j = i + 1
            kind = OTHER
    if kind == OTHER:
        j = run_end(data, j, end, classes, OTHER)
        return run_end(data, j, end, classes, BREAK)
    last = line = j = i  # line: behind the last line break
    while j < end:
        kind, size = class_at(data, j, classes)
        if kind < SPACE:
            break
        last = j
        j += size
        if kind == BREAK:
            line = j
    if line > i:
        return line
    return j if j == end or last == i else last
