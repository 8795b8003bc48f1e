"""Escapes outside text for a terminal: file names, ids, excerpts and messages of libraries.

A terminal obeys a control sequence in such a text: it moves the cursor, hides lines or sets the window's title. A
bidirectional override changes the order in which a text is shown. Printable characters of every script stay.
"""

from __future__ import annotations

import re
import sys

_UNSAFE = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u2028\u2029"  # line and paragraph separators: a line of output stays one line
    "\u202a-\u202e\u2066-\u2069"  # bidirectional embeddings, overrides and isolates
    "\ud800-\udfff"  # lone surrogates, which no output encoding takes
    "]"
)


def printable(text: str, keep: str = "") -> str:
    r"""The text with what a terminal would obey written as `\x1b` or `\u202e`; the characters of `keep` stay.

    For a text of several lines, `keep="\n\t"`. A backslash stays single: this is for eyes, and cannot be reversed.
    """
    return _UNSAFE.sub(lambda match: match[0] if match[0] in keep else _escape(match[0]), text)


def say(text: str, *, error: bool = False, end: str = "\n", flush: bool = False) -> None:
    """Print `text`, of one or more lines, `printable`: every command prints words through here.

    A name within it in which a line feed would begin a line is made `printable` by its caller. `error`: to standard
    error.
    """
    print(printable(text, "\n\t"), end=end, file=sys.stderr if error else sys.stdout, flush=flush)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
