"""The datasets that peers read, and what a serial loop over their source says that each must hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from support.corpus import json_lines, take_documents
from support.engine.inline import inline
from support.oracle import delimited, encoding
from support.row_oracle import Document, rows_of
from support.runs import make_job
from tokenization_worker import run_job

TOKENIZERS = {"UInt16": "gpt2", "UInt32": "cl100k_base"}
ROW_LENGTH = 129
SHARD_ROWS = 37
SHARD_TOKENS = 5000


@dataclass(frozen=True, slots=True)
class Content:
    """What the shards of a split hold.

    `shards`: tokens of each; `entries`: tokens of each document in a shard, or of each row.
    """

    tokens: list[int]
    shards: list[int]
    entries: list[int]


@cache
def texts() -> Sequence[str]:
    """Short documents, empty ones, and one that goes over several shards."""
    return (*take_documents(60_000), "", "a long document " * 4000, "", *take_documents(9_000, first=900), "end", "")


def make_dataset(format: str, dtype: str, layout: str, folder: Path) -> Path:
    """Run a job in this process; returns the folder of the split `train`, the only one."""
    source = folder / "source"
    source.mkdir(parents=True)
    (source / "a.jsonl").write_bytes(json_lines(texts()[::2]))
    (source / "b.jsonl").write_bytes(json_lines(texts()[1::2]))
    output: dict[str, Any] = {"formats": [format], "dtype": dtype, "path": "{split}/{index:06d}"}
    if layout == "rows":
        output |= {"sequence": {"length": ROW_LENGTH}, "shards": {"sequences": SHARD_ROWS}}
    else:
        output |= {"shards": {"tokens": SHARD_TOKENS}}
    job = make_job(source, folder / "out", {"tokenizer": {"name": TOKENIZERS[dtype]}}, output=output)
    run_job(job, executor=inline())
    return folder / "out" / "train"


@cache
def expected_content(dtype: str, layout: str) -> Content:
    """The same by a loop: a tokenizer's own encoding, the delimiter before each document, cut into shards or rows."""
    name = TOKENIZERS[dtype]
    documents = [delimited(name, [text]) for text in (*texts()[::2], *texts()[1::2])]
    if layout == "rows":
        numbered = [Document(0, number, "", tokens) for number, tokens in enumerate(documents)]
        rows = list(rows_of(numbered, length=ROW_LENGTH, by_file=False, pad=encoding(name).eot_token))
        tokens = [token for row in rows for token, *_ in row]
        size, borders = ROW_LENGTH * SHARD_ROWS, range(0, len(tokens) + 1, ROW_LENGTH)
    else:
        tokens = [token for document in documents for token in document]
        size, borders = SHARD_TOKENS, [0, *accumulate(map(len, documents))]
    ends = [*range(0, len(tokens), size), len(tokens)]
    return Content(tokens, _steps(ends), _steps(sorted({*ends, *borders})))


def _steps(borders: Sequence[int]) -> list[int]:
    return [end - start for start, end in pairwise(borders)]
