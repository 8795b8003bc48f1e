"""Guesses the encoding of text that is not UTF-8, as a hint for messages. Converts nothing.

Many byte strings are text in several encodings, so each guess needs evidence that is rare by chance: NUL bytes at every
other place, or a strict decoder that accepts all of it and finds the characters that its languages use most.
"""

from __future__ import annotations

import re

_LEAST_NULS = 0.3
"""Of every other byte: ASCII in UTF-16 has nearly all, Han characters next to none."""

_LEAST_COMMON = 0.5
"""Of the characters beyond ASCII: kana in Japanese, the common Han characters in Chinese."""

_MOST_ACCENTS = 0.35
"""Of the letters: more bytes above 0x7f are another script in a single-byte encoding, of which there are many."""

_MOST_CONTROLS = 0.02
"""Of all bytes: random ones have 11 %."""

_KANA = re.compile("[\u3040-\u30ff]")
_HIGH = re.compile(rb"[\x80-\xff]")
_HAN = re.compile("[\u4e00-\u9fff]")


def guess_encoding(data: bytes) -> str | None:
    """The name that `iconv` has for the encoding that `data` looks like; None where nothing is likely.

    `data` may begin and end inside a character. Expected is text that is not UTF-8.
    """
    wide = guess_wide(data)
    if wide is not None:
        return wide
    japanese = _decode(data, "shift_jis")
    if japanese is not None and _share(_KANA, japanese) >= _LEAST_COMMON / 2:
        return "SHIFT_JIS"
    chinese = _decode(data, "gb18030")
    if chinese is not None and _share(_HAN, chinese) >= _LEAST_COMMON and _is_paired(data):
        return "GB18030"
    return _guess_single(data)


def count_lines(content: bytes) -> tuple[int, int]:
    """Lines with bytes above 0x7f, of those that are UTF-8 and of those that are not: (valid, invalid)."""
    counts = [0, 0]
    begin = 0
    while (high := _HIGH.search(content, begin)) is not None:
        end = content.find(b"\n", high.start())
        end = len(content) if end < 0 else end
        counts[not _is_utf8(content[high.start() : end])] += 1  # what is before it in the line is ASCII
        begin = end
    return counts[0], counts[1]


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_binary(data: bytes) -> bool:
    """Whether `data` is no text in any encoding of bytes: more than a few control characters."""
    controls = sum(byte < 0x20 and byte not in b"\t\n\f\r" for byte in data)
    return controls > _MOST_CONTROLS * len(data)


def guess_wide(data: bytes) -> str | None:
    """UTF-16 without a byte order mark, for data that begins at an even byte of the file."""
    even, odd = data[::2], data[1::2]
    if not odd:
        return None
    if odd.count(0) >= _LEAST_NULS * len(odd) > 0 and even.count(0) < odd.count(0) / 4:
        return "UTF-16LE"
    if even.count(0) >= _LEAST_NULS * len(even) > 0 and odd.count(0) < even.count(0) / 4:
        return "UTF-16BE"
    return None


def _guess_single(data: bytes) -> str | None:
    """Western European, where bytes above 0x7f are the exception among letters."""
    high = sum(byte >= 0x80 for byte in data)
    letters = high + sum(chr(byte).isalpha() for byte in data if byte < 0x80)
    if not high or high > _MOST_ACCENTS * letters or 0 in data:
        return None
    has_c1 = any(0x80 <= byte < 0xA0 for byte in data)
    if not has_c1:
        return "ISO-8859-1"
    return "CP1252" if _decode(data, "cp1252") is not None else None


def _decode(data: bytes, encoding: str) -> str | None:
    """The text, where all of it is valid but for a character that is cut at an end."""
    for begin in range(2):
        for end in range(4):
            try:
                return data[begin : len(data) - end].decode(encoding)
            except UnicodeDecodeError as error:
                if begin < error.start < len(data) - 8:
                    break
    return None


def _share(wanted: re.Pattern[str], text: str) -> float:
    beyond = [character for character in text if character > "\x7f"]
    return sum(bool(wanted.match(character)) for character in beyond) / len(beyond) if beyond else 0.0


def _is_paired(data: bytes) -> bool:
    """Whether bytes above 0x7f stand together: accents of Western text stand alone."""
    runs = re.findall(rb"[\x80-\xff]+", data)
    return bool(runs) and sum(map(len, runs)) / len(runs) >= 3
