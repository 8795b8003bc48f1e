"""Compiles what a training runs, once: `python -m support.compiled_training`. Else several processes do it at once."""

from __future__ import annotations

import numpy as np

from tokenization_worker.training.merging import Trainer
from tokenization_worker.training.patterns import PieceCounter
from tokenization_worker.training.vocabulary import byte_ids


def main() -> None:
    for pattern in ("Gpt2", "Cl100k"):
        counter = PieceCounter(pattern, None, is_compiled=True)
        counter.count([b"the cat and the hat"])
        pieces = counter.take().sort()
    Trainer(pieces, byte_ids().astype(np.int32), 2).step()


if __name__ == "__main__":
    main()
