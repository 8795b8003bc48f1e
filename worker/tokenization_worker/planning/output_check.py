"""Checks that a new dataset fits: the free space at the output, the names and the splits."""

from __future__ import annotations

from tokenization_worker.errors import TemporaryError
from tokenization_worker.events import Warned, Watcher
from tokenization_worker.output.layout import require_number_fits
from tokenization_worker.planning.estimate import Estimate
from tokenization_worker.planning.prepare import Prepared
from tokenization_worker.planning.splits import Streams
from tokenization_worker.storage.base import Store


def require_room(store: Store, estimate: Estimate, watch: Watcher) -> None:
    """Refuse to start where the dataset will clearly not fit: not a quarter of it, as estimates may be far off.

    Needed: all shards, and scratch, which is deleted as shards are built; at worst there are segments of all tokens,
    when one slow file holds all shards back, or scattered objects of all tokens. `watch` is told where that may not
    fit.
    """
    free = store.free_bytes()
    shard_bytes, scratch_bytes = estimate.shard_bytes, estimate.scratch_bytes
    if free is not None and shard_bytes is None:
        _warn_of_unknown_room(store, estimate, free, watch)
    if free is None or shard_bytes is None or scratch_bytes is None:
        return
    needed = shard_bytes + scratch_bytes
    if needed <= free:
        return
    shards = f"shards {_in_words(shard_bytes)} and {_in_words(scratch_bytes)} for a while"
    words = f"{store.uri}: this run needs about {_in_words(needed)} ({shards}); {_in_words(free)} are free"
    if needed > 4 * free:
        raise TemporaryError("OutputFull", words, next_step="free space there, or write to another output.uri")
    watch(Warned(f"{words}: the run may stop when the disk is full, and continues when you free space"))


def _in_words(size: int) -> str:
    """`1.3 GB`, `25.0 kB`, `0 B`; powers of ten."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"


def _warn_of_unknown_room(store: Store, estimate: Estimate, free: int, watch: Watcher) -> None:
    """Warn of a source that is larger than the free room: whether its tokens fit is not known."""
    if estimate.source_bytes > free:
        watch(
            Warned(
                f"{store.uri}: tokjob cannot estimate the space that this run needs, because the sampled beginnings of "
                f"the files hold no whole document; the source has about {_in_words(estimate.source_bytes)} and "
                f"{_in_words(free)} are free: the run may stop when the disk is full, and continues when you free space"
            )
        )


def require_shards(prepared: Prepared) -> None:
    """Raise where names or the estimate leave no doubt: strange files, an empty split, a shard number too long."""
    if prepared.strange is not None:
        raise prepared.strange
    output, tokens = prepared.data.output, prepared.estimate.tokens
    if tokens is None:
        return
    streams = Streams(output.splits)
    leading = sum(split.shards or 0 for split in output.splits[:-1])
    estimated = prepared.estimate.groups if prepared.data.path_groups else {"": tokens}
    padding = prepared.estimate.stored_tokens(output) / tokens if tokens else 1.0
    runs = {group: round(count * padding) for group, count in estimated.items() if count is not None}
    largest = max(runs.values(), default=0) if "{index" in output.path else round(tokens * padding)
    require_number_fits(output.path, largest // 2 // output.shard_tokens)
    for group, count in runs.items():
        is_empty_group = bool(group) and not count  # has no shards, which the end of the run tells
        if not streams.by_hash and not is_empty_group and count * 2 < leading * output.shard_tokens:
            streams.require_all_filled([-(-count // output.shard_tokens)], group)
