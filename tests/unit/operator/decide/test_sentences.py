"""What a status says of a run, in the words of others: short, and without their secrets."""

from __future__ import annotations

import pytest

from tokenization_operator.decide.status.truncate import MOST, join, shorten


def test_a_status_shows_no_secret_of_an_address() -> None:
    words = "StorageFailed: cannot reach http://user:hunter2@store:9000/b?X-Amz-Signature=f00d"
    assert shorten(words) == "StorageFailed: cannot reach http://***@store:9000/b?X-Amz-Signature=***"


def test_a_cut_never_shows_a_part_of_a_secret() -> None:
    words = "x" * (MOST - 20) + " http://user:" + "hunter2" * 40 + "@store " + "y" * MOST
    assert len(words) > MOST
    assert "hunter2" not in shorten(words)


@pytest.mark.parametrize(
    ("sentences", "line"),
    [
        (("one", "two"), "one. two"),
        (("not helpful for scheduling.", "0/1 worker"), "not helpful for scheduling. 0/1 worker"),
        (("did you mean 'a'?", "Next: b"), "did you mean 'a'? Next: b"),
        (("", "alone"), "alone"),
    ],
    ids=["plain", "ended", "question", "empty"],
)
def test_joined_sentences_end_once(sentences: tuple[str, ...], line: str) -> None:
    assert join(*sentences) == line
