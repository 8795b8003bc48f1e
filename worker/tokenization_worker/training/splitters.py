"""Cuts UTF-8 into the pieces of the GPT-2, cl100k and o200k patterns, in compiled code.

Each splitter returns the end of the piece that begins at byte `i` of `data` u8[n]; the text ends at `end`. `classes`
u8[0x110000] has the class of each code point, by the library that will encode. `patterns` holds the splitters against
that library before they are used.

GPT-2 and cl100k see no case: for them every letter is a `LETTER` and every mark is `OTHER`, so that a comparison of
equals finds a run. o200k tests bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.training.compiled import Bytes, borrowing, inlined

UPPER, LOWER, OTHER, NUMBER, SPACE, BREAK = 1, 2, 4, 8, 16, 32
LETTER, MARK = UPPER | LOWER, UPPER | LOWER | OTHER
"""Classes of code points. `UPPER`: title case, too. `LETTER`: one without case, which stands where capitals and where
small letters may. `MARK`: stands where such a letter and where other signs may. `BREAK`: CR and LF, which are white
space, too; only white space is `SPACE` or more."""

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


@borrowing
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


@inlined
def digits_end(data: Bytes, i: int, end: int, classes: Classes) -> int:
    """The end of two more digits at byte i, as far as there are digits."""
    for _ in range(2):
        if i < end:
            kind, size = class_at(data, i, classes)
            if kind == NUMBER:
                i += size
            else:
                break
    return i


@inlined
def lines_end(data: Bytes, i: int, end: int, classes: Classes) -> int:
    """The end of white space at byte i: of its last line break, else of all but the last character."""
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


@borrowing
def next_cl100k(data: Bytes, i: int, end: int, classes: Classes) -> int:
    """The end of the piece of cl100k's pattern, which is Llama 3's, too, that begins at byte i."""
    first = data[i]
    if first == 39:
        j = any_contraction_end(data, i, end)
        if j > i:
            return j
    kind, size = class_at(data, i, classes)
    if kind == LETTER:
        return run_end(data, i + size, end, classes, LETTER)
    if kind == NUMBER:
        return digits_end(data, i + size, end, classes)
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
    return lines_end(data, i, end, classes)


@inlined
def word_end(data: Bytes, i: int, end: int, classes: Classes) -> int:
    """The end of capitals and then small letters at byte i, where a letter or mark stands.

    That is `[upper]*[lower]+`, or else `[upper]+[lower]*`; letters without case and marks are in both classes. If no
    small letter follows the capitals, the first expression gives back what is behind the last character of both
    classes, and fails if there is none.
    """
    both = j = i  # both: behind the last character of both classes
    kind = UPPER
    while j < end:
        kind, size = class_at(data, j, classes)
        if not kind & UPPER:
            break
        j += size
        if kind & LOWER:
            both = j
    if j == end or not kind & LOWER:
        return j if both == i else both
    while j < end:
        kind, size = class_at(data, j, classes)
        if not kind & LOWER:
            break
        j += size
    return j


@borrowing
def next_o200k(data: Bytes, i: int, end: int, classes: Classes) -> int:
    """The end of the piece of o200k's pattern that begins at byte i."""
    first = data[i]
    kind, size = class_at(data, i, classes)
    if kind == NUMBER:
        return digits_end(data, i + size, end, classes)
    kind_behind = 0
    word = i
    if kind != BREAK and not kind & LETTER and i + size < end:  # one character belongs to the word behind it
        kind_behind, _ = class_at(data, i + size, classes)
        word = i + size
    if (kind | kind_behind) & LETTER:
        # A mark may be the one character before a word, too; the word that begins with it ends at the same place.
        j = word_end(data, word, end, classes)
        if j < end and data[j] == 39:
            return any_contraction_end(data, j, end)
        return j
    if kind == OTHER or (first == 32 and kind_behind == OTHER):
        j = i + size
        while j < end:  # marks, too
            kind, size = class_at(data, j, classes)
            if not kind & OTHER:
                break
            j += size
        while j < end and (data[j] == 10 or data[j] == 13 or data[j] == 47):  # a slash
            j += 1
        return j
    return lines_end(data, i, end, classes)
