"""Compiles what a training runs, once: `python -m support.compiled_training`. Else several processes do it at once."""

from __future__ import annotations

from io import BytesIO

from tokenization_worker.pipelines.train.counts_object import CountsWriter, read_counts
from tokenization_worker.training.counting import PieceTable
from tokenization_worker.training.merging import Trainer
from tokenization_worker.training.patterns import PieceCounter
from tokenization_worker.training.vocabulary import byte_ids


def main() -> None:
    numbers = b" ".join(b"%d" % number for number in range(20_000))  # more than a new table has room for
    table = PieceTable()
    for pattern in ("Gpt2", "Cl100k", "O200k"):
        counter, scratch = PieceCounter(pattern, None, is_compiled=True), BytesIO()
        counter.count([numbers])
        writer = CountsWriter(scratch)
        writer.write(counter.take())
        writer.finish()
        for pieces in read_counts(scratch.getvalue(), writer.pieces):
            table.add(pieces)
    Trainer(table.take().sort(), byte_ids(), 2).step()


if __name__ == "__main__":
    main()
