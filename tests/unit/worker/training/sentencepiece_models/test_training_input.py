"""The trainer is given every piece with its count, whatever its characters and its length."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from support.counted import pieces_of
from tokenization_worker.training.sentencepiece_models.training_input import (
    COVERAGE,
    LEAST_COVERAGE,
    MOST_PIECE_BYTES,
    choose_coverage,
    choose_stand_ins,
    count_characters,
    write_lines,
)

PRIVATE = "\U0010fffd".encode()


def test_lines_hold_all_text_with_its_counts() -> None:
    counts = {b"a\tb": 3, "▅".encode(): 2**40, b"\n\n": 1, ("é" * 2000).encode(): 7, b"x" * MOST_PIECE_BYTES: 5}
    pieces = pieces_of(counts)
    stand_ins = choose_stand_ins(pieces, ())
    found: Counter[bytes] = Counter()
    for line in write_lines(pieces, stand_ins):
        text, count = line.split(b"\t")
        assert len(text) <= MOST_PIECE_BYTES
        text.decode()
        for character, stand_in in stand_ins.items():
            text = text.replace(stand_in, character)
        found[text] += int(count)
    parts = ["é" * 512] * 3 + ["é" * 464]
    expected = Counter({piece: count for piece, count in counts.items() if len(piece) <= MOST_PIECE_BYTES})
    for part in parts:
        expected[part.encode()] += 7
    assert found == expected


def test_stand_ins_are_in_no_piece_and_no_special_token() -> None:
    assert choose_stand_ins(pieces_of({b"a": 1}), ()) == {b"\t": PRIVATE, "▅".encode(): "\U0010fffc".encode()}
    taken = choose_stand_ins(pieces_of({b"a" + PRIVATE: 1}), ("<\U0010fffb>",))
    assert taken == {b"\t": "\U0010fffc".encode(), "▅".encode(): "\U0010fffa".encode()}


def test_characters_are_counted_as_a_naive_program_does() -> None:
    numbers = random.Random(0)
    counts = {
        "".join(numbers.choices("ab é日\0\n▁😀", k=numbers.randrange(1, 9))).encode(): numbers.randrange(1, 2**34)
        for _ in range(70_000)
    }
    naive: Counter[str] = Counter()
    for piece, count in counts.items():
        for character in piece.decode():
            naive[character] += count
    del naive["\0"]
    assert count_characters(pieces_of(counts)).tolist() == sorted(naive.values(), reverse=True)
    assert count_characters(pieces_of({b"\0\0": 3})).tolist() == []


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        pytest.param(5, COVERAGE, id="all-may"),
        pytest.param(4, COVERAGE, id="as-many-as-needed"),
        pytest.param(3, np.float32(0.9985), id="one-less"),
        pytest.param(1, LEAST_COVERAGE, id="too-few"),
        pytest.param(-2, LEAST_COVERAGE, id="none"),
    ],
)
def test_rare_characters_give_way_to_other_tokens(most: int, expected: float) -> None:
    counts = np.array([9000, 900, 85, 14, 1])
    assert choose_coverage(counts, most) == expected
