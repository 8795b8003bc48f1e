"""What a status says of a run, in the words of others: short, and without their secrets."""

from __future__ import annotations

from tokenization_operator.sentences import MOST, shorten


def test_a_status_shows_no_secret_of_an_address() -> None:
    words = "StorageFailed: cannot reach http://user:hunter2@store:9000/b?X-Amz-Signature=f00d"
    assert shorten(words) == "StorageFailed: cannot reach http://***@store:9000/b?X-Amz-Signature=***"


def test_a_cut_never_shows_a_part_of_a_secret() -> None:
    words = "x" * (MOST - 20) + " http://user:" + "hunter2" * 40 + "@store " + "y" * MOST
    assert len(words) > MOST
    assert "hunter2" not in shorten(words)
