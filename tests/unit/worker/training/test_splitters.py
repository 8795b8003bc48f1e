"""The compiled splitters cut as the library does that will encode."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tiktoken_ext import openai_public

from tokenization_worker.training import patterns
from tokenization_worker.training.patterns import (
    PieceCounter,
    find_classes,
    has_exact_splitter,
    library_cut,
    pattern_text,
    soup_of,
)
from tokenization_worker.training.splitters import LETTER, LOWER, MARK, NUMBER, OTHER, SPACE, UPPER

ALPHABET = (
    "  \n\r\t\u00a0\u2028a\u0301bSsTtLlVvEeRrDdMm'''\u017fK1\u0663\u00bd.,!-日本é\U0001f600\0\x85\u200b"
    "//ÉŁ\u01c5\u01c8\u02b0\u0e46\u00aa\u05d0\u0903\u20dd\ufe0f\u2160\u24d0\U0001d400\U00010428\U000e0100"
)
FEW = "aA日\u0301!'s/\n 1"  # one or two of each class
NAMES = ["Gpt2", "Cl100k", "O200k"]


def counted(pattern: str, texts: list[str]) -> dict[bytes, int]:
    counter = PieceCounter(pattern, None, is_compiled=True)
    counter.count([text.encode() for text in texts])
    return dict(counter.take().items())


def expected(pattern: str, texts: list[str]) -> Counter[bytes]:
    cut = library_cut(pattern, None)
    return Counter(piece.encode() for text in texts for piece in cut(text))


def soups() -> list[str]:
    numbers = random.Random(5)
    return ["".join(numbers.choices(characters, k=numbers.randrange(1, 12))) for characters in (ALPHABET, FEW) * 3000]


def code_points(step: int) -> list[str]:
    """Every code point that differs from its neighbour in class, and every so many others, in six places each."""
    table = find_classes("O200k")
    edges = np.flatnonzero(np.diff(table, prepend=9))
    chosen = sorted(
        {*edges.tolist(), *(edges - 1).tolist(), *range(0, 0x110000, step)} - set(range(0xD800, 0xE000)) - {-1}
    )
    return [soup_of(chr(point)) for point in chosen]


LONG = [
    " " * 1_000_000,
    "日" * 500_000,
    "a" * 1_000_000,
    "A" * 100_000,
    "日" + "A" * 100_000,
    "\u0301A" * 50_000,
    "\n" * 100_000 + "x",
    "!" + "/\n" * 50_000,
    "1" * 100_001,
    "'s" * 10_000,
]


@pytest.mark.parametrize("pattern", NAMES)
@pytest.mark.parametrize("texts", [soups, partial(code_points, 31), lambda: LONG], ids=["soups", "points", "long"])
def test_pieces_are_those_of_the_library(pattern: str, texts: object) -> None:
    assert callable(texts)
    assert counted(pattern, texts()) == expected(pattern, texts())


@pytest.mark.exhaustive
@pytest.mark.parametrize("pattern", NAMES)
def test_pieces_with_every_code_point_are_those_of_the_library(pattern: str) -> None:
    assert counted(pattern, code_points(1)) == expected(pattern, code_points(1))


@pytest.mark.parametrize("pattern", NAMES)
def test_a_splitter_is_used_only_where_it_cuts_as_the_library(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_exact_splitter(pattern, None)
    other = find_classes(pattern).copy()
    other[0x301] = LETTER  # a combining accent
    monkeypatch.setattr(patterns, "find_classes", lambda _: other)
    assert not has_exact_splitter(pattern, None)


@pytest.mark.parametrize("pattern", NAMES)
def test_a_character_of_another_class_makes_other_pieces(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    classes = [LETTER, OTHER, NUMBER, SPACE, *([UPPER, LOWER, MARK] if pattern == "O200k" else [])]
    table = find_classes(pattern).copy()
    monkeypatch.setattr(patterns, "find_classes", lambda _: table)
    seen = []
    for kind in classes:
        table[ord("é")] = kind
        seen.append(counted(pattern, [soup_of("é")]))
    assert all(seen.count(pieces) == 1 for pieces in seen)


@pytest.mark.parametrize(
    "pieces",
    [
        "hello|World| HTTPServer|!",
        "日|ABC",  # capitals give back what is behind the last letter without case, unless a small one follows
        "A日|BC|!",
        "A日BCd|!",
        "ABC日| ABC日",
        "日\u0301|ABC",
        "\u0301|ABC",
        "\u0301ABc",
        "!\u0301a|!",  # a mark begins a word, and belongs to signs
        "!!\u0301|a",
        "!| \u0301a",
        "123|4|a\u0301\u0301|5",
        "\tABC|\t| ABC| \n| Abc",
        "We'LL|''|s|Ss|'''|S",
        "ABC's|don'T|ODO's|a's|A",
        "日'Re|A's|日|A|'x",
        "a|.\n/\n/|b|/c",
        "a| //\n/\r\n\n/|d",
    ],
)
def test_o200k_cuts_as_its_pattern_says(pieces: str) -> None:
    text = pieces.replace("|", "")
    assert list(library_cut("O200k", None)(text)) == pieces.split("|")
    assert counted("O200k", [text]) == Counter(piece.encode() for piece in pieces.split("|"))


def test_llama3_is_the_pattern_of_cl100k() -> None:
    assert pattern_text("Llama3", None) == pattern_text("Cl100k", None)
    assert counted("Llama3", soups()) == counted("Cl100k", soups())
    assert has_exact_splitter("Llama3", None)


def test_the_pattern_of_o200k_is_that_of_tiktoken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: {})
    assert pattern_text("O200k", None) == openai_public.o200k_base()["pat_str"]


def test_kept_classes_of_other_probes_are_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    read = patterns._read_runs.__wrapped__
    assert read() == [tuple(run) for run in read()]  # found out, and kept
    monkeypatch.setattr(patterns, "_PROBES", ((r"\s+", SPACE),))
    assert {kind for *_, kind in read()} == {SPACE}


def test_an_expression_of_ones_own_is_cut_by_the_library() -> None:
    assert not has_exact_splitter("Gpt2", r"\p{L}+|[^\p{L}]")
    counter = PieceCounter("Gpt2", r"\p{L}+|[^\p{L}]", is_compiled=False)
    counter.count([b"one two", b"two!"])
    assert dict(counter.take().items()) == {b"one": 1, b" ": 1, b"two": 2, b"!": 1}
    assert len(counter.take()) == 0
