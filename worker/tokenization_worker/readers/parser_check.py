"""Digests the JSON parser's answers to a few hostile lines, to compare two versions of the parser.

Parsers differ on duplicate keys, on numbers and constants that are no JSON, on lone surrogates, on depth, on bytes that
are not UTF-8, and on what may stand around a value.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import orjson

_LINES = (
    b'{"text": "a", "text": "b"}',
    b'{"text": NaN}',
    b'{"text": Infinity}',
    b'{"text": "\\ud800"}',
    b'{"text": "\\ud83d\\ude00"}',
    b'{"text": "\\udc00\\ud800"}',
    b'{"text": "\xff"}',
    b'{"text": "\xed\xa0\x80"}',
    b'{"text": "\xc0\x80"}',
    b'{"text": "a\x00b"}',
    b'{"text": "a\\u0000b"}',
    b'{"text": "a\tb"}',
    b'{"text": "a\x7f\xc2\x85\xe2\x80\xa8b"}',
    b'{"text": "\\/\\b\\f\\n\\r\\t\\"\\\\"}',
    b'{"text": "\\x41"}',
    b"{'text': 'a'}",
    b'{"text": "a",}',
    b'{"text": "a"} x',
    b'\xef\xbb\xbf{"text": "a"}',
    b'\x0b{"text": "a"}',
    b'{"text": "a" /* note */}',
    b'{"n": 123456789012345678901234567890, "text": "a"}',
    b'{"n": 1e999, "text": "a"}',
    b'{"n": 01, "text": "a"}',
    b'{"n": +1, "text": "a"}',
    b'{"n": .5, "text": "a"}',
    b'{"text": "cut',
    b'{"": {"": ["a"]}, "text": ""}',
    b'{"n": ' + b"[" * 1000 + b"]" * 1000 + b', "text": "a"}',
    b'{"n": ' + b"[" * 1100 + b"]" * 1100 + b', "text": "a"}',
)


def parser_digest(loads: Callable[[bytes], object] = orjson.loads) -> str:
    """Of a parser's answers; equal where they are. `loads` raises ValueError for what is no JSON."""
    answers = repr([_answer(loads, line) for line in _LINES])
    return sha256(answers.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _answer(loads: Callable[[bytes], object], line: bytes) -> object:
    try:
        found = loads(line)
    except ValueError:
        return "refused"
    return found.get("text") if isinstance(found, dict) else "another value"
