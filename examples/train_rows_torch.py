#!/usr/bin/env python3
"""Train a small GPT on packed rows with PyTorch: attention stays inside of documents, padding counts nowhere.

    python examples/train_rows_torch.py DATASET [--split NAME] [--steps N] [--workers N] [--checkpoint FILE]

DATASET was made with `output.sequence`. The rows come in a shuffled order that seed and epoch fix, through PyTorch's
DataLoader. With `--checkpoint` the model and the number of steps are saved at the end, and the same command goes on
from there with the very next row.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

from tokenization_worker import open_dataset
from tokenization_worker.dataset import Rows
from tokenization_worker.errors import TokenizationError

Example = dict[str, Any]
_TYPES = {"tokens": torch.int32, "segment_ids": torch.int32, "positions": torch.int32, "loss_mask": torch.bool}


class Block(nn.Module):
    """Attention and a feed-forward network, each with a norm before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, may_attend: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.norms[0](x)).split(width, dim=2))
        scores = (q @ k.transpose(2, 3) / shape[3] ** 0.5).masked_fill(~may_attend, float("-inf"))
        x = x + self.out((scores.softmax(3) @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class Gpt(nn.Module):
    """Predicts the next token of each row. `ids`: above every id, padding's included."""

    def __init__(self, ids: int, length: int, *, width: int = 32, heads: int = 2, layers: int = 2) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(ids, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, ids, bias=False)

    def loss(self, example: dict[str, torch.Tensor]) -> torch.Tensor:
        """The mean cross-entropy, in nats, of the tokens that `loss_mask` counts."""
        tokens, segments = example["tokens"].long(), example["segment_ids"][:, :-1]
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        is_same = segments[:, :, None] == segments[:, None, :]
        may_attend = torch.tril(is_same)[:, None]  # padding attends to padding: its loss does not count
        x = self.tokens(inputs) + self.places(example["positions"][:, :-1].long())
        for block in self.blocks:
            x = block(x, may_attend)
        losses = functional.cross_entropy(self.head(x).flatten(0, 1), targets.flatten(), reduction="none")
        counts = example["loss_mask"].flatten()
        return (losses * counts).sum() / counts.sum().clamp(min=1)


def collate(examples: Sequence[Example]) -> dict[str, torch.Tensor]:
    """A batch of examples as tensors; by their bytes, which all versions of numpy and PyTorch can exchange."""
    batch = {name: bytearray(np.stack([example[name] for example in examples])) for name in _TYPES}
    return {name: torch.frombuffer(batch[name], dtype=_TYPES[name]).view(len(examples), -1) for name in _TYPES}


def load_batches(
    rows: Rows, *, batch: int, first_step: int, workers: int, seed: int = 0
) -> Iterator[dict[str, torch.Tensor]]:
    """Batches of examples, from step `first_step` of the first epoch on, for ever."""
    steps = len(rows) // batch  # of an epoch
    while True:
        epoch, step = divmod(first_step, steps)
        order = rows.order(seed=seed, epoch=epoch)[step * batch : steps * batch]
        yield from DataLoader(rows.examples(), batch, sampler=order, num_workers=workers, collate_fn=collate)
        first_step = (epoch + 1) * steps


def train(
    uri: str, split: str = "train", *, steps: int = 50, batch: int = 4, workers: int = 0, checkpoint: Path | None = None
) -> list[float]:
    """Train until step `steps`; returns the losses of the steps that this call has made."""
    dataset = open_dataset(uri)
    rows = dataset[split].rows
    torch.manual_seed(1)
    model = Gpt(max(dataset.vocab_size, (dataset.pad_id or 0) + 1), rows.length)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    first = 0
    if checkpoint is not None and checkpoint.exists():
        saved = torch.load(checkpoint)
        first = saved["steps"]
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    losses: list[float] = []
    batches = load_batches(rows, batch=batch, first_step=first, workers=workers)
    for _, example in zip(range(first, steps), batches, strict=False):
        loss = model.loss(example)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if checkpoint is not None:
        state = {"steps": steps, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, checkpoint)
    return losses


def main(arguments: list[str] | None = None) -> int:
    """Train and print the loss."""
    parser = argparse.ArgumentParser(description="Train a small GPT on packed rows.")
    parser.add_argument("dataset")
    parser.add_argument("--split", default="train")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--workers", type=int, default=0, help="processes that read rows")
    parser.add_argument("--checkpoint", type=Path, help="go on from here, and save here")
    options = parser.parse_args(arguments)
    try:
        losses = train(
            options.dataset,
            options.split,
            steps=options.steps,
            workers=options.workers,
            checkpoint=options.checkpoint,
        )
    except (TokenizationError, TypeError) as error:
        print(error, file=sys.stderr)
        return 2
    if not losses:
        print(f"all {options.steps} steps are done")
        return 0
    first = options.steps - len(losses)
    for number in sorted({*range(0, len(losses), max(1, len(losses) // 10)), len(losses) - 1}):
        print(f"step {first + number:4}  loss {losses[number]:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
