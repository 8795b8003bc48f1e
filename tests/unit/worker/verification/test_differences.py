"""Findings are one sentence: the first difference alone."""

from __future__ import annotations

import pytest

from tokenization_worker.verification.differences import MOST_CHARACTERS, first_difference


@pytest.mark.parametrize(
    ("expected", "found", "words"),
    [
        (1, 2, ("x", "1", "2")),
        ({"a": 1, "b": {"c": [1, 2]}}, {"a": 1, "b": {"c": [1, 3]}}, ("x.b.c[1]", "2", "3")),
        ({"a": 1}, {"a": 1, "b": 2}, ("x.b", "nothing", "2")),
        ({"a": 1, "b": 2}, {"b": 2}, ("x.a", "1", "nothing")),
        ([1], [1, {"a": 2}], ("x[1]", "nothing", "{'a': 2}")),
        ([1, 2], [1], ("x[1]", "2", "nothing")),
        ([1], None, ("x", "[1]", "None")),
        (("train", 0), ("train", 1), ("x", "('train', 0)", "('train', 1)")),
        ([{"a": 1}] * 1000 + [2], [{"a": 1}] * 1000 + [3], ("x[1000]", "2", "3")),
    ],
    ids=repr,
)
def test_the_first_difference_is_named(expected: object, found: object, words: tuple[str, str, str]) -> None:
    assert first_difference("x", expected, found) == words


def test_long_values_are_cut() -> None:
    found = first_difference("x", "a" * 1000, "")
    assert found.expected == "a" * MOST_CHARACTERS + "..."
