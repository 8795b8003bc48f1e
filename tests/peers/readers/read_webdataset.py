"""`webdataset.WebDataset` over the shards of the manifest, one and all of them; its decoders read gzip and JSON."""

from __future__ import annotations

import json

import numpy as np
import webdataset
from report import FOLDER, ROW_LENGTH, print_split


def read(paths):  # type: ignore[no-untyped-def]
    """The rows of some tars."""
    samples = webdataset.WebDataset(paths, shardshuffle=False, empty_check=False).decode()
    return [(sample["__key__"], sample["json.gz"]) for sample in samples]


lines = [json.loads(line) for line in (FOLDER / "manifest.jsonl").read_text().splitlines()]
paths = [str(FOLDER / f"{line['shard']}.tar") for line in lines]
assert sorted(paths) == sorted(map(str, FOLDER.glob("*.tar")))
shards = [read(path) for path in paths]
assert [len(rows) for rows in shards] == [line["num_sequences"] for line in lines]
keys = [key for rows in shards for key, _ in rows]
assert len(set(keys)) == len(keys)
assert read(paths) == [row for rows in shards for row in rows]
assert all(len(row) == ROW_LENGTH for rows in shards for _, row in rows)
entries = [len(row) for rows in shards for _, row in rows]
print_split([np.array([row for _, row in rows]) for rows in shards], entries=entries)
