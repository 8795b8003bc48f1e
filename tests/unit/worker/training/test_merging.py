"""Merges are those of a naive trainer: exact counts, and of equal ones the pair with the lowest tokens."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from tokenization_worker.training.merging import Trainer
from tokenization_worker.training.pieces import Pieces
from tokenization_worker.training.vocabulary import Vocabulary, byte_ids

Pair = tuple[int, int]


def naive(pieces: dict[bytes, int], n_merges: int, ties: str) -> tuple[list[Pair], list[int]]:
    """Count all pairs anew before each merge."""
    texts = [bytes([byte]) for byte in range(256)]
    words = [(list(piece), count) for piece, count in pieces.items()]
    merges: list[Pair] = []
    counts: list[int] = []
    while len(merges) < n_merges:
        pairs = Counter[Pair]()
        for symbols, count in words:
            for pair in pairwise(symbols):
                pairs[pair] += count
        if not pairs:
            break
        most = max(pairs.values())
        equal = [pair for pair in pairs if pairs[pair] == most]
        best = min(equal) if ties == "LowestIds" else max(equal, key=lambda pair: (texts[pair[0]], texts[pair[1]]))
        texts.append(texts[best[0]] + texts[best[1]])
        for symbols, _ in words:
            place = 0
            while place < len(symbols) - 1:
                if (symbols[place], symbols[place + 1]) == best:
                    symbols[place : place + 2] = [256 + len(merges)]
                place += 1
        merges.append(best)
        counts.append(pairs[best])
    return merges, counts


def pieces_of(counts: dict[bytes, int]) -> Pieces:
    ends = np.cumsum([len(piece) for piece in counts], dtype=np.int64)
    return Pieces(np.frombuffer(b"".join(counts), np.uint8), ends, np.array(list(counts.values()), np.int64))


def train(pieces: Pieces, n_merges: int, ties: str = "LowestIds") -> Trainer:
    trainer = Trainer(pieces, np.arange(256, dtype=np.int32), n_merges, largest_text=ties == "LargestText")
    while not trainer.is_finished:
        trainer.step()
    return trainer


@pytest.mark.parametrize("ties", ["LowestIds", "LargestText"])
@pytest.mark.parametrize("alphabet", ["ab", "abc", "abcdefg"])
def test_merges_and_counts_are_those_of_a_naive_trainer(alphabet: str, ties: str) -> None:
    numbers = random.Random(alphabet)
    for _ in range(140):
        counts = {
            "".join(numbers.choices(alphabet, k=numbers.randrange(1, 25))).encode(): numbers.randrange(1, 9)
            for _ in range(numbers.randrange(1, 30))
        }
        trainer = train(pieces_of(counts), 60, ties)
        assert ([tuple(pair) for pair in trainer.merges.tolist()], trainer.counts.tolist()) == naive(counts, 60, ties)


def test_a_training_in_small_steps_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = random.Random(1)
    counts = {"".join(numbers.choices("abcdefghij", k=9)).encode(): numbers.randrange(1, 99) for _ in range(2000)}
    whole = train(pieces_of(counts), 500)
    monkeypatch.setattr("tokenization_worker.training.merging._WORK", 1)
    small = train(pieces_of(counts), 500)
    assert small.merges.tolist() == whole.merges.tolist()
    assert len(whole.merges) == 500


@pytest.mark.parametrize("counts", [{}, {b"a": 7}], ids=["nothing", "single bytes"])
def test_text_without_pairs_gives_no_merges(counts: dict[bytes, int]) -> None:
    assert len(train(pieces_of(counts), 10).merges) == 0


def test_text_of_long_tokens_is_kept_for_ties() -> None:
    """Each merge doubles the token: the texts outgrow what they began with."""
    counts = {b"ab" * 4096: 3, b"cd" * 4096: 3}
    merges = train(pieces_of(counts), 26, "LargestText").merges.tolist()
    assert merges[:2] == [[ord("c"), ord("d")], [ord("a"), ord("b")]]
    assert merges == [list(pair) for pair in naive(counts, 26, "LargestText")[0]]


@pytest.mark.parametrize("bytes_first", [False, True])
def test_ids_follow_the_layout(bytes_first: bool) -> None:
    ids = byte_ids(bytes_first=bytes_first)
    merges = np.array([[ids[ord("t")], ids[ord("h")]], [256, ids[ord("e")]], [ids[ord(" ")], 257]], np.int32)
    vocabulary = Vocabulary(merges, ("<|a|>", "<|b|>"), bytes_first)
    assert [vocabulary.text(number) for number in range(3)] == [b"th", b"the", b" the"]
    assert vocabulary.texts[256:] == [b"th", b"the", b" the"]
    assert sorted(ids.tolist()) == list(range(256))
    assert ids[ord("!")] == (33 if bytes_first else 0)
    first = 256 if bytes_first else 259
    assert vocabulary.special_ids() == {"<|a|>": first, "<|b|>": first + 1}
    assert vocabulary.ids()[256:] == ([258, 259, 260] if bytes_first else [256, 257, 258])
    assert vocabulary.to_ranks().splitlines()[-1] == (b"IHRoZQ== 260" if bytes_first else b"IHRoZQ== 258")
