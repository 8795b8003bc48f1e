"""The patterns that cut text into pieces: as `tokenizer.json` has them, and as pieces are counted here.

The library that will encode, `tokenizers`, is the authority. For each named pattern there is a compiled splitter, which
takes its classes of characters and is compared with it before each use; where one differs, and for a regular expression
of the user's, the library cuts, at a thirtieth of the speed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import tokenizers
from tokenizers import pre_tokenizers

from tokenization_worker.errors import DataError, SpecError
from tokenization_worker.host.kept_files import keep_fact, read_fact
from tokenization_worker.training import counting
from tokenization_worker.training.counting import PieceTable
from tokenization_worker.training.pieces import Pieces
from tokenization_worker.training.splitters import BREAK, LETTER, LOWER, MARK, NUMBER, OTHER, SPACE, UPPER, Classes

GPT2, CL100K, LLAMA3, O200K = "Gpt2", "Cl100k", "Llama3", "O200k"

_GPT2_TEXT = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K_TEXT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Without possessive quantifiers, which the library's engine takes for something else: `{1,3}+` repeats. Llama 3's
`tokenizer.json` has this text, too."""
_O200K_TEXT = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_TEXTS = {GPT2: _GPT2_TEXT, CL100K: _CL100K_TEXT, LLAMA3: _CL100K_TEXT, O200K: _O200K_TEXT}
_SPLITTERS = {GPT2: counting.GPT2, CL100K: counting.CL100K, LLAMA3: counting.CL100K, O200K: counting.O200K}

_PROBES = (
    (r"[\p{Lu}\p{Lt}]+", UPPER),
    (r"\p{Ll}+", LOWER),
    (r"[\p{Lm}\p{Lo}]+", LETTER),
    (r"\p{M}+", MARK),
    (r"\p{N}+", NUMBER),
    (r"\s+", SPACE),
)
"""What a class holds; every other code point is `OTHER`."""

_SOUPS = 2000
_ALPHABET = (
    "  \n\r\t\u00a0\u2028\u3000a\u0301bSsTtLlVvEeRrDdMm''\u2019\u017f\u212aK1\u0663\u00bd.,!-日é\U0001f600\0\x85\u200b"
    "/É\u01c5\u02b0\u00aa\u0903\u20dd\u24d0\U0001d400\U00010428"
)
"""Of every class: also title case, modifiers, marks, signs that have a case, and capitals of four bytes."""


def library_version() -> str:
    """The library that cuts, with its version."""
    return f"tokenizers {tokenizers.__version__}"


def pattern_text(pattern: str, regex: str | None) -> str:
    """The regular expression, as a rank file needs it beside it."""
    if regex is not None:
        return regex
    return _TEXTS[pattern]


def describe_pattern(pattern: str, regex: str | None) -> dict[str, Any]:
    """The pre-tokenizer of a `tokenizer.json`, without the step that makes bytes of each piece."""
    if regex is None and pattern == GPT2:
        return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    text = pattern_text(pattern, regex)
    split = {"type": "Split", "pattern": {"Regex": text}, "behavior": "Isolated", "invert": False}
    to_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"type": "Sequence", "pretokenizers": [split, to_bytes]}


Cut = Callable[[str], Iterator[str]]


@cache
def library_cut(pattern: str, regex: str | None) -> Cut:
    """Cuts a text as the library does. Raises `SpecError` for a regular expression that the library refuses."""
    splitter: Any
    if regex is None and pattern == GPT2:
        splitter = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        try:
            splitter = pre_tokenizers.Split(tokenizers.Regex(pattern_text(pattern, regex)), "isolated")
        except Exception as error:  # the library raises this class
            raise SpecError(
                "SpecInvalid",
                f"tokenizer.regex: the library tokenizers cannot use it: {error}",
                next_step="correct the expression; its syntax is that of Oniguruma",
            ) from error

    def cut(text: str) -> Iterator[str]:
        return (text[start:end] for _, (start, end) in splitter.pre_tokenize_str(text))

    return cut


class PieceCounter:
    """Counts the pieces of texts by one pattern. `is_compiled`: by a splitter of ours."""

    def __init__(self, pattern: str, regex: str | None, *, is_compiled: bool) -> None:
        self._pattern = pattern
        self._table = PieceTable()
        self._cut = library_cut(pattern, regex)
        self._splitter = _SPLITTERS[pattern] if is_compiled else None
        self._slow = Counter[str]()
        self._slow_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Memory of what is counted."""
        return self._table.size_bytes + self._slow_bytes

    def count(self, texts: Sequence[bytes]) -> None:
        """Count the pieces of each text, in UTF-8. Raises `PatternFails` with the number of a text that the library
        gives up."""
        if self._splitter is not None:
            ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
            self._table.count(
                self._splitter, find_classes(self._pattern), np.frombuffer(b"".join(texts), np.uint8), ends
            )
            return
        for number, text in enumerate(texts):
            try:
                pieces = Counter(self._cut(text.decode()))
            except BaseException as error:  # a panic of Rust is no Exception
                if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                    raise
                raise PatternFails(number, str(error)) from error
            for piece in pieces:  # the difference of both keys would go through all that is counted
                if piece not in self._slow:
                    self._slow_bytes += 150 + len(piece)  # an entry of a dictionary, its text and its number
            self._slow.update(pieces)

    def take(self) -> Pieces:
        """All that is counted; the counter is empty afterwards."""
        if self._splitter is not None:
            return self._table.take()
        parts = [piece.encode() for piece in self._slow]
        counts = np.fromiter(self._slow.values(), np.int64, len(parts))
        ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
        self._slow, self._slow_bytes = Counter(), 0
        return Pieces(np.frombuffer(b"".join(parts), np.uint8), ends, counts)


class PatternFails(Exception):
    """The library gives up one text, of this number."""

    def __init__(self, number: int, detail: str) -> None:
        super().__init__(number, detail)
        self.number = number
        self.detail = detail


def pattern_fails(where: str, fails: PatternFails) -> DataError:
    """The error of a document at `where` on which a pattern fails."""
    return DataError(
        "PatternFails",
        f"{where}: the pattern of the tokenizer gives up on this document: {fails.detail}",
        next_step="simplify tokenizer.regex: nested repetitions backtrack without end",
    )


def has_exact_splitter(pattern: str, regex: str | None) -> bool:
    """Whether a compiled splitter cuts as the library does: whatever the library's version knows of characters."""
    if regex is not None or pattern not in _SPLITTERS:
        return False
    random_numbers = random.Random(0)
    texts = ["".join(random_numbers.choices(_ALPHABET, k=random_numbers.randrange(1, 12))) for _ in range(_SOUPS)]
    table = find_classes(pattern)
    borders = np.flatnonzero(np.diff(table, prepend=table[0] + 1)).tolist()
    edges = {
        point for border in borders for point in (border - 1, border) if point >= 0 and not 0xD800 <= point < 0xE000
    }
    texts += [soup_of(chr(point)) for point in sorted(edges)]
    encoded = [text.encode() for text in texts]
    ours = PieceCounter(pattern, regex, is_compiled=True)
    theirs = PieceCounter(pattern, regex, is_compiled=False)
    for counter in (ours, theirs):
        counter.count(encoded)
    return dict(ours.take().items()) == dict(theirs.take().items())


def soup_of(character: str) -> str:
    """A text whose pieces differ with the class of the character."""
    c = character
    return f"a{c} {c}1\n{c}'{c}Aa--{c}"


@cache
def find_classes(pattern: str) -> Classes:
    """The class of each code point, u8[0x110000], as a pattern's splitter takes it."""
    table = np.full(0x110000, OTHER, np.uint8)
    for start, end, kind in _read_runs():
        table[start:end] = kind
    table[[10, 13]] = BREAK
    if pattern != O200K:  # no case, and no marks
        table[(table == UPPER) | (table == LOWER)] = LETTER
        table[table == MARK] = OTHER
    return table


@cache
def _read_runs() -> list[tuple[int, int, int]]:
    """Runs [start, end) of code points of one class, as the library sees them; once for each host and version."""
    key = {"library": library_version(), "probes": _PROBES}
    fact = read_fact("character-classes", key)
    runs = fact.get("runs") if fact is not None else None
    if not isinstance(runs, list):
        runs = _probe_classes()
        keep_fact("character-classes", key, {"runs": runs})
    return runs


def _probe_classes() -> list[tuple[int, int, int]]:
    """Cut all code points into runs of one class, and find out the class of the first one of each run."""
    points = [*range(0xD800), *range(0xE000, 0x110000)]
    any_class = "|".join(probe for probe, _ in _PROBES)
    runs = [run for _, run in _split("".join(map(chr, points)), any_class, "isolated")]
    firsts = "".join(chr(points[start]) for start, _ in runs)
    found: list[tuple[int, int, int]] = []
    for probe, kind in _PROBES:
        is_in = np.ones(len(runs), np.bool_)
        for _, (start, end) in _split(firsts, probe, "removed"):
            is_in[start:end] = False
        found += [
            (points[start], points[end - 1] + 1, kind)
            for (start, end), chosen in zip(runs, is_in, strict=True)
            if chosen
        ]
    return found


def _split(text: str, regex: str, behavior: str) -> list[tuple[str, tuple[int, int]]]:
    """Pieces of the text with their places."""
    pieces: list[tuple[str, tuple[int, int]]]
    pieces = pre_tokenizers.Split(tokenizers.Regex(regex), behavior).pre_tokenize_str(text)
    return pieces
