#!/usr/bin/env python3
"""A tiny training loop on a finished dataset: numpy only, a bigram model, a loss that goes down.

    python examples/train_loop.py [DATASET] [--split NAME] [--steps N]      default: out/tokens, train, 50

`random_windows` is for your own loop: windows of a fixed length at random places of a split, read from memory-mapped
shards. A dataset can be pickled, so the same works in the processes of a data loader.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization_worker import open_dataset
from tokenization_worker.dataset import Split
from tokenization_worker.errors import TokenizationError

Tokens = NDArray[np.int64]


class Batch(NamedTuple):
    """`x` i64[batch, window] and, for each of its tokens, the one that follows: `y` i64[batch, window]."""

    x: Tokens
    y: Tokens


def random_windows(split: Split, *, window: int = 1024, batch: int = 16, seed: int = 0) -> Iterator[Batch]:
    """Batches for ever, each of `batch` windows of `window` tokens at random places of `split`."""
    places = len(split) - window
    if places < 1:
        raise ValueError(f"split {split.name!r} has {len(split):,} tokens, and a window takes {window + 1:,}")
    random = np.random.default_rng(seed)
    while True:
        starts = random.integers(places, size=batch).tolist()
        rows = np.stack([split.tokens(start, start + window + 1) for start in starts]).astype(np.int64)
        yield Batch(rows[:, :-1], rows[:, 1:])


class BigramModel:
    """Counts which token follows which; a pair never seen falls back on how frequent the second token is.

    `caution`: once a token was seen this often, what followed it counts as much as the fallback.
    """

    def __init__(self, vocab_size: int, caution: float = 4.0) -> None:
        self._vocab_size = vocab_size
        self._caution = caution
        self._followers = np.ones(vocab_size)  # how often a token came second; one each to begin with
        self._firsts = np.zeros(vocab_size)  # how often a token came first
        self._pairs = np.empty(0, dtype=np.int64)  # pairs seen, sorted, as first * vocab_size + second
        self._counts: NDArray[np.float64] = np.empty(0)  # how often

    def loss(self, batch: Batch) -> float:
        """Mean cross-entropy of the next token in nats."""
        fallback = self._followers[batch.y] / self._followers.sum()
        seen = self._count_of(batch.x * self._vocab_size + batch.y)
        probability = (seen + self._caution * fallback) / (self._firsts[batch.x] + self._caution)
        return float(-np.log(probability).mean())

    def update(self, batch: Batch) -> None:
        """Learn a batch: count its pairs."""
        np.add.at(self._followers, batch.y, 1)
        np.add.at(self._firsts, batch.x, 1)
        new, counts = np.unique(batch.x * self._vocab_size + batch.y, return_counts=True)
        pairs, places = np.unique(np.concatenate([self._pairs, new]), return_inverse=True)
        self._counts = np.bincount(places, np.concatenate([self._counts, counts])).astype(np.float64)
        self._pairs = pairs

    def _count_of(self, pairs: Tokens) -> NDArray[np.float64]:
        if not len(self._pairs):
            return np.zeros(pairs.shape)
        places = np.minimum(np.searchsorted(self._pairs, pairs), len(self._pairs) - 1)
        return np.where(self._pairs[places] == pairs, self._counts[places], 0.0)


def train(uri: str, split: str = "train", *, steps: int = 50, window: int = 1024) -> list[float]:
    """Train on a split; returns the loss of every step, taken before the step learns its batch."""
    dataset = open_dataset(uri)
    if split not in dataset:
        raise ValueError(f"{uri} has no split {split!r}; it has: {', '.join(dataset)}")
    model = BigramModel(dataset.vocab_size)
    losses = []
    for _, batch in zip(range(steps), random_windows(dataset[split], window=window), strict=False):
        losses.append(model.loss(batch))
        model.update(batch)
    return losses


def main(arguments: list[str] | None = None) -> int:
    """Train and print the loss."""
    parser = argparse.ArgumentParser(description="A tiny training loop on a finished dataset.")
    parser.add_argument("dataset", nargs="?", default="out/tokens")
    parser.add_argument("--split", default="train")
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error(f"--steps {options.steps}: give a number above 0")
    try:
        losses = train(options.dataset, options.split, steps=options.steps)
    except (TokenizationError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    for step in range(0, len(losses), max(1, len(losses) // 10)):
        print(f"step {step:4}  loss {losses[step]:.3f}")
    print(f"step {len(losses) - 1:4}  loss {losses[-1]:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
