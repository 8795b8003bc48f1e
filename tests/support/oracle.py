"""The slow, obvious way to the same shards: tiktoken, a Python list, numpy.save. Shares nothing with the worker.

Written from the descriptions of the two scripts that this project replaces, and from the manifest's reference for
the options in general: read it beside them. Everything is held in memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache
from hashlib import blake2b
from pathlib import Path

import numpy as np
import tiktoken

RANK_FILES = Path(sys.prefix) / "share" / "tokenization" / "tiktoken"


@cache
def encoding(name: str) -> tiktoken.Encoding:
    """A tiktoken encoding, from rank files that are on this machine."""
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = before or str(RANK_FILES)
    try:
        return tiktoken.get_encoding(name)
    finally:
        if before is None:
            del os.environ["TIKTOKEN_CACHE_DIR"]


def delimited(name: str, documents: Iterable[str], position: str = "Before") -> list[int]:
    """All tokens of `documents`, each with the end-of-text token before it, after it, or not at all."""
    tokenizer = encoding(name)
    tokens: list[int] = []
    for text in documents:
        if position == "Before":
            tokens.append(tokenizer.eot_token)
        tokens.extend(tokenizer.encode_ordinary(text))
        if position == "After":
            tokens.append(tokenizer.eot_token)
    return tokens


def cut(tokens: Sequence[int], shard_tokens: int) -> list[Sequence[int]]:
    """Runs of `shard_tokens` tokens; the last one may be shorter."""
    return [tokens[at : at + shard_tokens] for at in range(0, len(tokens), shard_tokens)]


def save(path: Path, tokens: Sequence[int], dtype: type[np.unsignedinteger]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.array(tokens, dtype=dtype))


def write_jaxformer(folder: Path, documents: Iterable[str], *, shard_tokens: int, test_shards: int) -> None:
    """GPT-4's tokens as uint32; the first shards are `test`, the others `train`, each counted from 0."""
    for number, shard in enumerate(cut(delimited("cl100k_base", documents), shard_tokens)):
        split, index = ("test", number) if number < test_shards else ("train", number - test_shards)
        save(folder / split / f"{split}_{index:04d}.npy", shard, np.uint32)


def write_nanogpt(folder: Path, documents: Iterable[str], *, shard_tokens: int) -> None:
    """GPT-2's tokens as uint16; shard 0 is `val`, the others `train`, counted on."""
    for number, shard in enumerate(cut(delimited("gpt2", documents), shard_tokens)):
        split = "val" if number == 0 else "train"
        save(folder / f"edufineweb_{split}_{number:06d}.npy", shard, np.uint16)


def write_one_split(
    folder: Path,
    documents: Iterable[str],
    *,
    name: str,
    dtype: type[np.unsignedinteger],
    shard_tokens: int,
    position: str = "Before",
) -> None:
    """The default layout: `train/train_000000.npy` and so on."""
    for index, shard in enumerate(cut(delimited(name, documents, position), shard_tokens)):
        save(folder / "train" / f"train_{index:06d}.npy", shard, dtype)


def write_by_hash(
    folder: Path,
    documents: Sequence[str],
    *,
    name: str,
    dtype: type[np.unsignedinteger],
    shard_tokens: int,
    shares: dict[str, Fraction],
    position: str = "Before",
) -> None:
    """Each document goes to the split that a hash of its text says; the last of `shares` takes the rest."""
    rest = list(shares)[-1]
    texts: dict[str, list[str]] = {split: [] for split in shares}
    for text in documents:
        number = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
        total = Fraction(0)
        for split, share in shares.items():
            total += share
            if split == rest or number < total * 2**64 // 1:
                texts[split].append(text)
                break
    for split, chosen in texts.items():
        for index, shard in enumerate(cut(delimited(name, chosen, position), shard_tokens)):
            save(folder / split / f"{split}_{index:06d}.npy", shard, dtype)
