"""What is held out depends on the documents, and not on how they came."""

from __future__ import annotations

import random

from tokenization_worker.pipelines.train.holdout import HeldOut, Holdout, hash_of, read_held_out

DOCUMENTS = [f"document {number} {'é' * (number % 50)}" for number in range(3000)]
ROOM = 5000


def held_out(texts: list[str]) -> list[HeldOut]:
    return [HeldOut(hash_of(text.encode()), text, "web") for text in texts]


def expected() -> list[str]:
    kept, size = [], 0
    for _, text in sorted((hash_of(text.encode()), text) for text in DOCUMENTS):
        if size >= ROOM:
            return kept
        size += len(text.encode())
        kept.append(text)
    return kept


def test_those_with_the_lowest_hashes_are_kept_whatever_the_ranges() -> None:
    for ranges in (1, 3, 40):
        order = list(DOCUMENTS)
        random.Random(ranges).shuffle(order)
        merged = Holdout(ROOM)
        for number in range(ranges):
            part = Holdout(ROOM)
            part.add(held_out(order[number::ranges]))
            merged.add(read_held_out(part.lines()))
        assert [document.text for document in merged.kept()] == expected()
        assert {document.group for document in merged.kept()} == {"web"}
