"""Passes over lines of white space at the speed of a scan, however many they are.

A file of blank lines shrinks ten thousandfold when it is compressed: 64 Mi of them are 2 KB of zstd. Judging each of
them like any other line took minutes; the bytes of all of them are looked at here in one go. Which lines are blank is
the rule of `jsonl`: nothing but spaces, tabs and CR, and not longer than what is parsed.
"""

from __future__ import annotations

import re

_WHITE_SPACE = re.compile(rb"[ \t\r\n]*+")


def skip_blank_lines(data: bytes | bytearray, begin: int, end: int, max_line_bytes: int) -> tuple[int, int]:
    """Where the blank lines at `data[begin:end]` end, and how many they are.

    Only lines that end with LF are passed, and none that is longer than `max_line_bytes`. 280 MB/s of newlines, one
    core (2026-11-23).
    """
    lines = 0
    while begin < end:
        most = min(end, begin + max_line_bytes + 1)
        white = _WHITE_SPACE.match(data, begin, most)
        stop = data.rfind(b"\n", begin, white.end() if white else begin) + 1
        if not stop:
            break
        lines += data.count(b"\n", begin, stop)
        begin = stop
    return begin, lines
