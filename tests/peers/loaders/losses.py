"""Losses of the small GPT of examples/train_rows_torch.py, fed by one of three loaders; prints them as a JSON list.

    losses.py LOADER DATASET STEPS CHECKPOINT PATH...

LOADER: `naive` reads the files by numpy alone and makes masks token by token; `torch` is the example as it is, with two
worker processes; `grain` gives the same examples through grain, also with two, and its own state in the checkpoint.
PATH...: where packages are, behind those of this interpreter. Losses are hexadecimal, so that no bit is lost.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LOADER, DATASET, STEPS, CHECKPOINT = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
sys.path.extend(sys.argv[5:])
sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import train_rows_torch  # noqa: E402

from tokenization_worker import open_dataset  # noqa: E402

BATCH = 4


def naive_example(row: np.ndarray[Any, Any], parts: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Masks by a loop over tokens; `parts` are those of the row."""
    length = len(row)
    segments, positions, offsets = [0] * length, [0] * length, [0] * length
    for number, part in enumerate(parts):
        for token in range(part["length"]):
            place = part["start"] + token
            segments[place], positions[place], offsets[place] = number + 1, token, part["offset"] + token
    counts = []
    for token in range(length - 1):
        is_next_delimiter = segments[token + 1] > 0 and offsets[token + 1] == 0
        is_same = segments[token] == segments[token + 1] > 0
        counts.append(is_same or is_next_delimiter)
    return {
        "tokens": row.astype(np.int32),
        "segment_ids": np.array(segments, dtype=np.int32),
        "positions": np.array(positions, dtype=np.int32),
        "loss_mask": np.array(counts, dtype=np.bool_),
    }


def naive_batches(*, first_step: int) -> Iterator[dict[str, torch.Tensor]]:
    """All rows in memory, in the order that the example takes."""
    rows, parts = [], []
    for path in sorted((DATASET / "npy" / "train").iterdir()):
        found = np.load(DATASET / "parts" / "train" / path.name)
        for number, row in enumerate(np.load(path)):
            rows.append(row)
            parts.append(found[found["row"] == number])
    order = list(open_dataset(DATASET)["train"].rows.order(seed=0, epoch=0))
    for at in range(first_step * BATCH, len(order) - BATCH + 1, BATCH):
        yield train_rows_torch.collate([naive_example(rows[row], parts[row]) for row in order[at : at + BATCH]])


class GrainBatches:
    """The example's rows and order as a grain dataset; its iterator's state is kept beside the model."""

    def __init__(self, first_step: int) -> None:
        import grain

        rows = open_dataset(DATASET)["train"].rows
        examples = rows.examples()
        source = grain.MapDataset.source(rows.order(seed=0, epoch=0)).map(lambda row: examples[row])
        batches = source.batch(BATCH, drop_remainder=True).to_iter_dataset()
        self._batches = iter(batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=2)))
        self._kept = CHECKPOINT.with_suffix(".grain.json")
        if first_step:
            self._batches.set_state(json.loads(self._kept.read_text(encoding="utf-8")))

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for batch in self._batches:
            self._kept.write_text(json.dumps(self._batches.get_state()), encoding="utf-8")
            yield {
                name: torch.frombuffer(bytearray(batch[name]), dtype=kind).view(BATCH, -1)
                for name, kind in train_rows_torch._TYPES.items()
            }


def main() -> None:
    torch.set_num_threads(1)
    loaders: dict[str, Any] = {
        "naive": lambda rows, *, first_step, **_: naive_batches(first_step=first_step),
        "torch": train_rows_torch.load_batches,
        "grain": lambda rows, *, first_step, **_: GrainBatches(first_step),
    }
    train_rows_torch.load_batches = loaders[LOADER]
    losses = train_rows_torch.train(str(DATASET), steps=STEPS, batch=BATCH, workers=2, checkpoint=CHECKPOINT)
    print(json.dumps([loss.hex() for loss in losses]))


if __name__ == "__main__":
    main()
