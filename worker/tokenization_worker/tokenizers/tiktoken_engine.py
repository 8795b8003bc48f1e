"""The reference engine for tiktoken encodings: tiktoken itself, made total.

tiktoken panics (a BaseException) on about a million blanks in a row: its regex engine keeps one
backtracking state for each. In a text with such a run, the pieces that touch the run come from the `regex`
package with the encoding's own pattern, and everything else goes through tiktoken as usual. So the
package's own Unicode tables, which are newer than tiktoken's, decide nothing but how a run of blanks is
cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenization_worker.tokenizers.base import Encoded, IdArray, join_encoded

if TYPE_CHECKING:
    import tiktoken

_BLOCK = 50_000
"""Characters; a run of twice as many blanks fills at least one aligned block. Measured 2026-11, tiktoken
0.14: the panic comes between 700,000 and 1,000,000 blanks with gpt2, cl100k and o200k; a pattern of one's
own may need more states for each blank.
"""

Span = tuple[int, int]


class TiktokenEngine:
    """`encode_ordinary` of an encoding, as arrays, for any text."""

    name = "tiktoken"

    def __init__(self, encoding: tiktoken.Encoding, pattern: str) -> None:
        self._encoding = encoding
        self._pattern = pattern

    def encode(self, texts: Sequence[str]) -> Encoded:
        return join_encoded([self._encode_one(text) for text in texts])

    def decode(self, ids: Sequence[int]) -> str:
        """Text to look at; specials show as their text, ids that are no token as U+FFFD."""
        pieces = []
        for token in ids:
            try:
                pieces.append(self._encoding.decode_single_token_bytes(int(token)))
            except (KeyError, OverflowError):
                pieces.append(b"\xff")
        return b"".join(pieces).decode(errors="replace")

    def _encode_one(self, text: str) -> IdArray:
        if runs := find_long_blanks(text):
            return self._encode_around(text, runs)
        try:
            return self._encode_whole(text)
        except BaseException as error:
            if not _is_panic(error):
                raise
            return self._encode_around(text, [(0, len(text))])

    def _encode_whole(self, text: str) -> IdArray:
        return self._encoding.encode_to_numpy(text, disallowed_special=())

    def _encode_piece(self, piece: str) -> IdArray:
        return np.asarray(self._encoding._encode_single_piece(piece), np.uint32)

    def _encode_around(self, text: str, runs: Sequence[Span]) -> IdArray:
        """The tokens of a text in which tiktoken must not see `runs`.

        A part is given to tiktoken whole only up to the end of a piece that ends in no blank: a pattern's
        look-ahead past blanks could otherwise see the end of the part in place of what follows.
        """
        parts: list[IdArray] = []
        done = cut = 0  # text[done:cut] goes through tiktoken whole
        blank: list[str] = []  # the pieces after `cut`
        for match in self._splitter.finditer(text):
            start, end = match.span()
            if any(start < last and first < end for first, last in runs):
                parts.append(self._encode_whole(text[done:cut]))
                parts.extend(self._encode_piece(piece) for piece in [*blank, match.group()])
                done = cut = end
                blank = []
            elif text[end - 1].isspace():
                blank.append(match.group())
            else:
                cut = end
                blank = []
        parts.append(self._encode_whole(text[done:]))
        return np.concatenate(parts)

    @cached_property
    def _splitter(self) -> Any:
        import regex  # type: ignore[import-untyped]

        return regex.compile(self._pattern)


def find_long_blanks(text: str) -> list[Span]:
    """The runs of blanks of at least `2 * _BLOCK` characters (and some shorter ones), as [start, end).

    One character in `_BLOCK` is looked at, unless it is blank.
    """
    runs: list[Span] = []
    for start in range(0, len(text) - _BLOCK + 1, _BLOCK):
        if not text[start].isspace() or not text[start : start + _BLOCK].isspace():
            continue
        before = text[max(0, start - _BLOCK) : start]
        after = text[start + _BLOCK : start + 2 * _BLOCK]
        first = start - len(before) + len(before.rstrip())
        last = start + _BLOCK + len(after) - len(after.lstrip())
        if runs and first <= runs[-1][1]:
            first = runs.pop()[0]
        runs.append((first, last))
    return runs


def _is_panic(error: BaseException) -> bool:
    kind = type(error)
    return (kind.__module__, kind.__name__) == ("pyo3_runtime", "PanicException")
