"""The reference engine for tiktoken encodings: tiktoken, with an answer for every text.

tiktoken panics (a BaseException) on about a million blanks in a row: its regex engine keeps one
backtracking state for each. In a text with such a run, the pieces that touch the run come from the `regex`
package with the encoding's own pattern, and everything else goes through tiktoken as usual. So the
package's own Unicode tables, which are newer than tiktoken's, decide nothing but how a run of blanks is
cut.

A pattern of one's own may also backtrack too far on some text (a ValueError after a million steps), or match nothing at
some place (a panic). Such a text is cut by the `regex` package as a whole, where a match of nothing is no piece. That
package has a limit for each match and none for a text, so the time is looked at after each match. A text that takes too
long, around its blanks or as a whole, cannot be encoded: `KillsEngine`, as for a text that ends its process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokenization_worker.tokenizers.base import Encoded, IdArray, KillsEngine, join_encoded

if TYPE_CHECKING:
    import tiktoken

_BLOCK = 50_000
"""Characters; a run of twice as many blanks fills at least one aligned block. Measured 2026-11, tiktoken
0.14: the panic comes between 700,000 and 1,000,000 blanks with gpt2, cl100k and o200k; a pattern of one's
own may need more states for each blank.
"""

_PATIENCE_S = 60.0
_PATIENCE_CHARACTERS = 64 << 20
"""CPU time for cutting one text of up to so many characters, and in proportion more for a larger one: patterns exist
that take the `regex` package longer than the universe is old. 64 MiB of text take it 20 to 40 s with the known ones."""

_LEAST_S = 0.001
"""For a match, where no time is left: the `regex` package takes 0 for no limit."""

_NO_IDS: IdArray = np.empty(0, np.uint32)

Span = tuple[int, int]


class _Uncuttable(Exception):
    """No library can cut a text into the pattern's pieces."""


class _Deadline(NamedTuple):
    """`at`: on the clock of this process's CPU time, which the `regex` package looks at, too."""

    at: float
    patience_s: float


class TiktokenEngine:
    """`encode_ordinary` of an encoding, as arrays, for any text."""

    name = "tiktoken"

    def __init__(self, encoding: tiktoken.Encoding, pattern: str) -> None:
        self._encoding = encoding
        self._pattern = pattern

    def encode(self, texts: Sequence[str]) -> Encoded:
        parts = []
        for number, text in enumerate(texts):
            if not text:  # 0.05 us, a call of tiktoken 3.5 us (2026-11-24): a file may hold millions of empty documents
                parts.append(_NO_IDS)
                continue
            try:
                parts.append(self._encode_one(text))
            except _Uncuttable as error:
                raise KillsEngine(number, str(error)) from error
        return join_encoded(parts)

    def decode(self, ids: Sequence[int]) -> str:
        """Text to look at; specials show as their text, ids that are no token as U+FFFD."""
        pieces = []
        for token in ids:
            try:
                pieces.append(self._encoding.decode_single_token_bytes(int(token)))
            except (KeyError, OverflowError):
                pieces.append(b"\xff")
        return b"".join(pieces).decode(errors="replace")

    def restore(self, ids: Sequence[int]) -> bytes:
        """The bytes that tokens of text stand for."""
        return self._encoding.decode_bytes(ids)

    def limited(self, seconds: float) -> TiktokenEngine:
        """The same engine with one limit for all texts that tiktoken does not cut by itself."""
        return _LimitedEngine(self._encoding, self._pattern, seconds)

    def _encode_one(self, text: str) -> IdArray:
        runs = find_long_blanks(text)
        deadline = self._deadline(text) if runs else None  # no look at the clock for most texts
        try:
            return self.encode_plainly(text) if deadline is None else self._encode_around(text, runs, deadline)
        except BaseException as error:  # a panic of Rust is no Exception
            if not is_refusal(error):
                raise
        return self._encode_pieces(text, deadline or self._deadline(text))

    def _deadline(self, text: str) -> _Deadline:
        patience_s = self._patience_s(text)
        return _Deadline(time.process_time() + patience_s, patience_s)

    def _patience_s(self, text: str) -> float:
        return _PATIENCE_S * max(1.0, len(text) / _PATIENCE_CHARACTERS)

    def encode_plainly(self, text: str) -> IdArray:
        """What tiktoken itself gives or raises."""
        return self._encoding.encode_to_numpy(text, disallowed_special=())

    def _encode_piece(self, piece: str) -> IdArray:
        return np.asarray(self._encoding._encode_single_piece(piece), np.uint32)

    def _encode_pieces(self, text: str, deadline: _Deadline) -> IdArray:
        """The tokens of a text that tiktoken refuses, all of it cut by the `regex` package."""
        pieces = [text[start:end] for start, end in self._cut(text, deadline)]
        return np.concatenate([np.empty(0, np.uint32), *map(self._encode_piece, pieces)])

    def _cut(self, text: str, deadline: _Deadline) -> Iterator[Span]:
        """The pieces by the `regex` package, as [start, end); raises `_Uncuttable`."""
        import regex  # type: ignore[import-untyped]

        try:
            left_s = max(_LEAST_S, deadline.at - time.process_time())
            for match in self._splitter.finditer(text, timeout=left_s):
                if time.process_time() >= deadline.at:
                    raise TimeoutError
                start, end = match.span()
                if start < end:
                    yield start, end
        except TimeoutError as error:
            raise _backtracks(deadline.patience_s) from error
        except regex.error as error:
            raise _Uncuttable(f"tokenizer.pattern backtracks, and is none for the package regex: {error}") from error

    def _encode_around(self, text: str, runs: Sequence[Span], deadline: _Deadline) -> IdArray:
        """The tokens of a text in which tiktoken must not see `runs`.

        A part is given to tiktoken whole only up to the end of a piece that ends in no blank: a pattern's
        look-ahead past blanks could otherwise see the end of the part in place of what follows.
        """
        parts: list[IdArray] = []
        done = cut = 0  # text[done:cut] goes through tiktoken whole
        blank: list[str] = []  # the pieces after `cut`
        for start, end in self._cut(text, deadline):
            if any(start < last and first < end for first, last in runs):
                parts.append(self.encode_plainly(text[done:cut]))
                parts.extend(self._encode_piece(piece) for piece in [*blank, text[start:end]])
                done = cut = end
                blank = []
            elif text[end - 1].isspace():
                blank.append(text[start:end])
            else:
                cut = end
                blank = []
        parts.append(self.encode_plainly(text[done:]))
        return np.concatenate(parts)

    @cached_property
    def _splitter(self) -> Any:
        import regex

        return regex.compile(self._pattern)


class _LimitedEngine(TiktokenEngine):
    """Takes so many seconds of CPU time for all texts together that tiktoken does not cut by itself; then none."""

    def __init__(self, encoding: tiktoken.Encoding, pattern: str, seconds: float) -> None:
        super().__init__(encoding, pattern)
        self._limit_s = self._left_s = seconds
        self._began: float | None = None

    def _encode_one(self, text: str) -> IdArray:
        self._began = None
        try:
            return super()._encode_one(text)
        finally:
            if self._began is not None:
                self._left_s -= time.process_time() - self._began

    def _deadline(self, text: str) -> _Deadline:
        self._began = time.process_time()
        return _Deadline(self._began + self._left_s, self._limit_s)


def _backtracks(patience_s: float) -> _Uncuttable:
    return _Uncuttable(f"tokenizer.pattern backtracks for more than {patience_s:.3g} s")


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


def is_refusal(error: BaseException) -> bool:
    """Whether a Rust library cannot encode a text: it panics, or its regular expressions give up."""
    kind = type(error)
    is_panic = (kind.__module__, kind.__name__) == ("pyo3_runtime", "PanicException")
    return is_panic or (isinstance(error, ValueError) and not isinstance(error, UnicodeError))
