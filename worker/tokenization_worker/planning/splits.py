"""Assigns documents to splits, and gives each shard its split and number. Pure.

A **stream** is a run of tokens that is cut into shards. With leading-shard splits there is one stream: its
first shards are the first split, and so on. With shares each split is a stream of its own, and the text's
hash says which, so that equal texts share a split whatever their ids and wherever they stand.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate

from tokenization_worker.api.data import SplitSpec
from tokenization_worker.errors import SpecError
from tokenization_worker.messages.counts import counted
from tokenization_worker.output.layout import ShardKey


@dataclass(frozen=True, slots=True)
class ShardName:
    """A shard's place: its split, its number within the split and over all shards (-1: not counted). `group`: "" where
    groups are not in paths."""

    split: str
    index: int
    shard: int
    group: str = ""

    @property
    def key(self) -> ShardKey:
        """What tells it from all other shards of a run."""
        return ShardKey(self.split, self.index, self.group)


@dataclass(frozen=True, slots=True)
class Streams:
    """How documents go to streams, and a stream's shards to splits."""

    splits: tuple[SplitSpec, ...]

    @property
    def by_hash(self) -> bool:
        return len(self.splits) > 1 and self.splits[0].share is not None

    @property
    def count(self) -> int:
        return len(self.splits) if self.by_hash else 1

    def thresholds(self) -> list[int]:
        """Upper ends, floor(cumulative share * 2**64), of all streams but the last; exact."""
        shares = [split.share for split in self.splits[:-1] if split.share is not None]
        return [int(total * 2**64) for total in accumulate(shares)]

    def name_shard(self, stream: int, number: int, group: str = "", before: int = 0) -> ShardName:
        """The split and index of the `number`-th shard of `stream`, of a group that has `before` shards before it."""
        if self.by_hash:
            return ShardName(self.splits[stream].name, number, -1, group)
        first = 0
        for split in self.splits[:-1]:
            assert split.shards is not None
            if number < first + split.shards:
                return ShardName(split.name, number - first, before + number, group)
            first += split.shards
        return ShardName(self.splits[-1].name, number - first, before + number, group)

    def require_all_filled(self, shard_counts: list[int], group: str = "") -> None:
        """Raise SplitEmpty unless every split got a shard. `shard_counts`: shards per stream, those of `group` where
        groups are in paths.
        """
        if self.by_hash:
            empty = [split.name for split, n in zip(self.splits, shard_counts, strict=True) if n == 0]
            why = "no document's hash falls into its share"
            ways_out = "give it a larger share, or more source files; write elsewhere or `tokjob clean` this output"
        else:
            wanted = sum(split.shards or 0 for split in self.splits[:-1])
            empty = [] if shard_counts[0] > wanted else [self.splits[-1].name]
            whole = f"group {group}" if group else "the corpus"
            why = f"{whole} fills {counted(shard_counts[0], 'shard')} and the leading splits take {wanted}"
            ways_out = (
                "ask for fewer leading shards, smaller shards, or more source files; "
                "if the run had begun, write elsewhere or `tokjob clean` this output"
            )
        if empty:
            of_group = f" of group {group}" if group else ""
            raise SpecError(
                "SplitEmpty",
                f"output.splits: split {empty[0]!r}{of_group} would hold no tokens: {why}",
                next_step=ways_out,
            )


def hash_of(text: bytes) -> int:
    """The 64-bit number that decides a text's split."""
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def stream_of(text: bytes, thresholds: list[int]) -> int:
    """The stream of a document of UTF-8 `text`."""
    return bisect_right(thresholds, hash_of(text))
