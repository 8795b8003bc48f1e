"""A source of groups with short and long texts, and the fields of jobs that read it into rows of one length."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PAD = 300
"""No id of a byte."""

FORMATS = ["Npy", "Raw", "LlmC", "Megatron", "WebDataset"]
PATHS = {"joined": "{split}/shard_{index:05d}", "apart": "{group}/{split}/shard_{index:05d}"}


def write_groups(folder: Path, files: Mapping[str, Sequence[int]], seed: int, longest: Callable[[int], int]) -> None:
    """Below `folder` a folder for each group, and in it a file for each number of `files`, of so many documents.

    `longest`: of a document by its number in the file, how many characters it has at most. Every ninth one is empty.
    """
    chance = random.Random(seed)
    number = 0
    for order, (group, counts) in enumerate(files.items()):
        (folder / f"{order}-{group}").mkdir()
        for size in counts:
            texts = ["" if at % 9 == 4 else draw(chance, longest(at)) for at in range(size)]
            content = "".join(json.dumps({"text": text}) + "\n" for text in texts)
            (folder / f"{order}-{group}" / f"{number}.jsonl").write_text(content or "\n")
            number += 1


def draw(chance: random.Random, longest: int) -> str:
    return "".join(chance.choices("abcä日 \n", k=chance.randrange(longest)))


def read_groups(folder: Path) -> dict[str, Any]:
    """The block `source` that reads what `write_groups` wrote."""
    groups = [{"name": each.name[2:], "uris": [str(each)]} for each in sorted(folder.iterdir())]
    return {"uris": None, "groups": groups}


def tokenizer_of(delimiter: str) -> dict[str, Any]:
    """Bytes with a delimiter at this position. `Pair`: a token before each document and another one after it."""
    if delimiter == "Pair":
        return {"name": "cl100k_base", "delimiter": {"begin": "<|fim_prefix|>", "end": "<|endoftext|>"}}
    return {"name": "bytes", "delimiter": {"position": delimiter}}


def pad_of(delimiter: str) -> dict[str, Any]:
    """With a pair of delimiters the one behind documents."""
    return {"token": "<|endoftext|>"} if delimiter == "Pair" else {"id": PAD}
