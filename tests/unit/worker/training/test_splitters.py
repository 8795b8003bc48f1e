"""The compiled splitters cut as the library does that will encode."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import numpy as np
import pytest

from tokenization_worker.training import patterns
from tokenization_worker.training.patterns import PieceCounter, find_classes, has_exact_splitter, library_cut

ALPHABET = "  \n\r\t\u00a0\u2028a\u0301bSsTtLlVvEeRrDdMm'''\u017fK1\u0663\u00bd.,!-日本é\U0001f600\0\x85\u200b"
NAMES = ["Gpt2", "Cl100k"]


def counted(pattern: str, texts: list[str]) -> dict[bytes, int]:
    counter = PieceCounter(pattern, None, is_compiled=True)
    counter.count([text.encode() for text in texts])
    return dict(counter.take().items())


def expected(pattern: str, texts: list[str]) -> Counter[bytes]:
    cut = library_cut(pattern, None)
    return Counter(piece.encode() for text in texts for piece in cut(text))


def soups() -> list[str]:
    numbers = random.Random(5)
    return ["".join(numbers.choices(ALPHABET, k=numbers.randrange(1, 12))) for _ in range(6000)]


def code_points(step: int) -> list[str]:
    """Every code point that differs from its neighbour in class, and every so many others, in six places each."""
    table = find_classes()
    edges = np.flatnonzero(np.diff(table, prepend=9))
    chosen = sorted(
        {*edges.tolist(), *(edges - 1).tolist(), *range(0, 0x110000, step)} - set(range(0xD800, 0xE000)) - {-1}
    )
    return [f"a{chr(point)} {chr(point)}1\n{chr(point)}'{chr(point)}" for point in chosen]


LONG = [" " * 1_000_000, "日" * 500_000, "a" * 1_000_000, "\n" * 100_000 + "x", "1" * 100_001, "'s" * 10_000]


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
    other = find_classes().copy()
    other[0x301] = 1  # a combining accent becomes a letter
    monkeypatch.setattr(patterns, "find_classes", lambda: other)
    assert not has_exact_splitter(pattern, None)


def test_an_expression_of_ones_own_is_cut_by_the_library() -> None:
    assert not has_exact_splitter("Gpt2", r"\p{L}+|[^\p{L}]")
    counter = PieceCounter("Gpt2", r"\p{L}+|[^\p{L}]", is_compiled=False)
    counter.count([b"one two", b"two!"])
    assert dict(counter.take().items()) == {b"one": 1, b" ": 1, b"two": 2, b"!": 1}
    assert len(counter.take()) == 0
