"""What every reader's script is given and prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
"""Of one split."""
DTYPE = sys.argv[2]
"""uint16 or uint32."""
ROW_LENGTH = int(sys.argv[3])
"""0 where a shard is one run of tokens."""


def files(suffix: str) -> list[Path]:
    """The shards, in the order in which trainers take them."""
    return sorted(FOLDER.glob(f"*{suffix}"))


def print_split(shards: Iterable[Any], **seen: list[int]) -> None:
    """Print the tokens of all shards, each an array of one or two dimensions; `seen` is what the reader tells more."""
    arrays = [shard.reshape(-1).tolist() for shard in shards]
    tokens = [token for array in arrays for token in array]
    print(json.dumps({"tokens": tokens, "shards": [len(array) for array in arrays], **seen}))
