"""Detects that the text in a very long line is too large, without parsing the line.

A parser holds the line, its own copy and the decoded text: 1.4 GB for a line of 380 MB (orjson, 2026-11). Most
lines that long are one text, so their long strings are measured where they lie and left out of what is
parsed. A text counts as too large only if it is so however its escapes decode; anything else is left
to the parser. Inside a string that was left out nothing is checked.
"""

from __future__ import annotations

import re

import orjson

from tokenization_worker.readers.field_path import value_at

GIANT_LINE_BYTES = 64 << 20
"""Shorter lines are simply parsed."""

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_MARK = "left out"


def smallest_text_bytes(
    data: bytes | bytearray, start: int, stop: int, path: tuple[str, ...], max_document_bytes: int
) -> int | None:
    """A lower bound above `max_document_bytes` for the UTF-8 size of the text at `path` in the line
    `data[start:stop]`; None: parse the line."""
    parts: list[bytes | bytearray] = []
    sizes: dict[str, int] = {}
    kept = start
    for match in _STRING.finditer(data, start, stop):
        begin, end = match.span()
        if end - begin <= max_document_bytes:
            continue
        # Of text, a short escape is 1 byte of 2, and \u0041 is 1 of 6.
        smallest = end - begin - 2 - data.count(b"\\", begin, end) - 4 * data.count(b"\\u", begin, end)
        if smallest > max_document_bytes:
            mark = f"{_MARK} {len(sizes)}"
            while mark.encode() in data:
                mark += "+"
            sizes[mark] = smallest
            parts += [data[kept:begin], orjson.dumps(mark)]
            kept = end
    if not sizes:
        return None
    parts.append(data[kept:stop])
    try:
        text = value_at(orjson.loads(b"".join(parts)), path)
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return sizes.get(text) if type(text) is str else None
