"""tiktoken's parsing of rank files, done once for each content of them: gpt2's take half a second of a core.

tiktoken reads and checks its files every time all the same, so that a file that is absent or damaged is still noticed;
who gets a table may empty it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tiktoken_ext.openai_public as openai_public
from tiktoken.load import read_file_cached

Ranks = dict[bytes, int]

_TABLES: dict[tuple[Any, ...], Ranks] = {}


def parse_ranks_once() -> None:
    """From now on, in this process and in its forks."""
    for name, files in (("data_gym_to_mergeable_bpe_ranks", 2), ("load_tiktoken_bpe", 1)):
        setattr(openai_public, name, _remembering(getattr(openai_public, name), files))


def _remembering(parse: Callable[..., Ranks], files: int) -> Callable[..., Ranks]:
    hashes = ("vocab_bpe_hash", "encoder_json_hash") if files == 2 else ("expected_hash",)
    names = ("vocab_bpe_file", "encoder_json_file") if files == 2 else ("tiktoken_bpe_file",)

    def parse_once(*arguments: str, **named: Any) -> Ranks:
        named |= dict(zip((*names, *hashes), arguments, strict=False))
        wanted = [named.get(expected) for expected in hashes]
        contents = [read_file_cached(named[name], sha256) for name, sha256 in zip(names, wanted, strict=True)]
        key = (names, *contents, *sorted(named.items()))
        if key not in _TABLES:
            _TABLES[key] = parse(**named)
        return dict(_TABLES[key])

    return parse_once
