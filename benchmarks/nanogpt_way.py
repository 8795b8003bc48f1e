"""nanoGPT's way to prepare FineWeb: one Pool, one array a document, shards filled by the parent.

    python benchmarks/nanogpt_way.py --encoding gpt2 --dtype uint16 --processes 2 --output DIR FILE...

The shape of `fineweb.py` in karpathy/build-nanogpt: `Pool.imap(tokenize, rows, chunksize=16)`, the delimiter first,
`encode_ordinary` into a list, an int64 array checked for range and cast, copied into a preallocated shard of 100M
tokens that is saved with `np.save`. What differs helps it or is asked of everybody here: rows come from .jsonl.zst by
backports.zstd and orjson, as many worker processes as the others have (it would take half the cores), no
progress bar, and every shard is made durable.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import tiktoken

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_encoding: tiktoken.Encoding


def main() -> int:
    global _encoding
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoding", required=True)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--shard-tokens", type=int, default=100_000_000)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    _encoding = tiktoken.get_encoding(options.encoding)
    options.output.mkdir(parents=True)
    dtype = np.dtype(options.dtype)
    with multiprocessing.get_context("fork").Pool(options.processes) as pool:
        documents = pool.imap(partial(tokenize, dtype=dtype), read_rows(options.files), chunksize=16)
        fill_shards(documents, options.output, options.shard_tokens, dtype)
    return 0


def read_rows(files: list[Path]) -> Iterator[dict[str, Any]]:
    for path in files:
        with zstd.open(path, "rb") as lines:
            for line in lines:
                yield orjson.loads(line)


def tokenize(row: dict[str, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """`dtype[n_tokens]` of one document, the delimiter first."""
    tokens = [_encoding.eot_token]
    tokens.extend(_encoding.encode_ordinary(row["text"]))
    array = np.array(tokens)
    if not ((array >= 0).all() and (array <= np.iinfo(dtype).max).all()):
        raise ValueError(f"a token does not fit {dtype}")
    return array.astype(dtype)


def fill_shards(
    documents: Iterator[np.ndarray[Any, Any]], output: Path, shard_tokens: int, dtype: np.dtype[Any]
) -> None:
    """Copy documents into one buffer; every time it is full, it is a shard."""
    shard = np.empty(shard_tokens, dtype)
    filled = number = 0
    for tokens in documents:
        left = tokens
        while filled + len(left) >= shard_tokens:
            room = shard_tokens - filled
            shard[filled:] = left[:room]
            save(output / f"shard_{number:06d}.npy", shard)
            number += 1
            filled = 0
            left = left[room:]
        shard[filled : filled + len(left)] = left
        filled += len(left)
    if filled:
        save(output / f"shard_{number:06d}.npy", shard[:filled])


def save(path: Path, tokens: np.ndarray[Any, Any]) -> None:
    with path.open("wb") as file:
        np.save(file, tokens)
        file.flush()
        os.fsync(file.fileno())


if __name__ == "__main__":
    sys.exit(main())
