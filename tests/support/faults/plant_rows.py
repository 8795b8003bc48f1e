"""Plants faults into a dataset of rows: what a `Planter` does, and faults of rows and parts themselves."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np

from support import row_oracle
from support.faults.plant import Planter, Row
from support.row_oracle import Part, RowShard, places_of

PART = np.dtype(
    [("position", "<u8"), ("file", "<u4"), ("row", "<u4"), ("start", "<u4"), ("length", "<u4"), ("offset", "<u4")]
)


class RowPlanter(Planter):
    """A dataset of rows, open for forgery. `change`: gets the shards of each stream before they are written.

    `by_file`: whether files begin new rows, and `seed`: by which rows are shuffled; as the dataset says unless they are
    changed. `cut_early`: as for `row_oracle.rows_of`; `block`, `is_cut`: as for `row_oracle.packed_shards_of`;
    `more_window`: by how many tokens its windows are too large; `most`: pieces in a row.
    """

    def __init__(self, output: Path) -> None:
        super().__init__(output)
        assert self.facts.sequence is not None
        self._sequence = self.facts.sequence
        self.by_file = self._sequence.by_file
        shuffle = self.facts.shuffle
        self.seed = shuffle.seed if shuffle is not None and shuffle.by_row else None
        self.cut_early = 0
        self.block = 1 << 24
        self.more_window = 0
        self.most = None if self._sequence.packing is None else self._sequence.packing.max_documents
        self.is_cut: Callable[[int], bool] = lambda size: False
        self.change: Callable[[list[RowShard]], None] = lambda shards: None

    def parts_path(self, stream: int, number: int) -> str:
        """Of the parts of a shard of a stream."""
        return self._file_paths(stream, number)[-1][1]

    def shard_path(self, stream: int, number: int) -> str:
        return self._shard_path(stream, number)

    def shards_of(self, stream: int) -> list[RowShard]:
        """Rows and parts as they should be."""
        documents = [
            row_oracle.Document(document.file, document.position, "", list(document.tokens))
            for document in self.in_stream(stream)
        ]
        length = self._sequence.length
        packing = self._sequence.packing
        if packing is not None:
            return row_oracle.packed_shards_of(
                documents,
                length=length,
                pad=self._sequence.pad_id,
                window=self.facts.shard_tokens + self.more_window,
                block=self.block,
                most=self.most,
                is_cut=self.is_cut,
                seed=self.seed,
            )
        shard_rows = self.facts.shard_tokens // length
        options = {"length": length, "by_file": self.by_file, "pad": self._sequence.pad_id, "shard_rows": shard_rows}
        options |= {"seed": self.seed, "cut_early": self.cut_early}
        return row_oracle.shards_of(documents, **options)  # type: ignore[arg-type]

    def _write_stream(self, stream: int) -> list[Row]:
        shards = self.shards_of(stream)
        self.change(shards)
        rows = []
        for number, shard in enumerate(shards):
            name = self._name(stream, number)
            tokens = np.array(shard.rows, dtype=self.facts.dtype)
            lengths = [tokens.shape[1]] * len(tokens)
            places = places_of(shard)
            files = self._write_files(stream, number, tokens, lengths, [parts_file(shard.parts)], places)
            main = {key: value for key, value in files[0].items() if key != "format"}
            rows.append(
                {
                    "split": name.split,
                    "index": name.index,
                    **({"group": name.group} if name.group else {}),
                    "path": main.pop("path"),
                    "tokens": sum(part.length for part in shard.parts),
                    "documents": sum(part.offset == 0 for part in shard.parts),
                    **main,
                    "rows": len(shard.rows),
                    "files": files,
                }
            )
        return rows


def change_of(change: Callable[[list[RowShard]], None]) -> Callable[[RowPlanter], None]:
    """A fault that changes the shards of each stream."""

    def plant(planter: RowPlanter) -> None:
        planter.change = change

    return plant


def parts_file(parts: list[Part]) -> bytes:
    """As numpy saves them."""
    file = BytesIO()
    np.save(file, np.array([tuple(part) for part in parts], dtype=PART))
    return file.getvalue()
