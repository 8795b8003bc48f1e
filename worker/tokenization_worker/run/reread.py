"""Reads the shards of earlier starts again, before the run writes the index.

A start takes the shards of earlier ones by their names, sizes and times. A disk may have lost bits of them since; so
a start reads them once more before it writes the index. Shards of the start's own are believed: it had their bytes in
memory when it computed their checksums. This module reports what it found; the run writes such shards again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.events import Checking, Warned, Watcher
from tokenization_worker.output.layout import ShardKey
from tokenization_worker.output.ledger.receipts import ShardReceipt
from tokenization_worker.output.shard_check import find_changed_bytes
from tokenization_worker.storage.base import Store

CHECKING_S = 10.0
"""Seconds between two progress events of this check."""


def reread_shards(
    store: Store, earlier: Sequence[ShardReceipt], watch: Watcher, should_stop: Callable[[], bool]
) -> frozenset[ShardKey]:
    """(split, index) of the shards among those of `earlier` starts that must be written again; raises `Stopped`."""
    changed = find_changed_bytes(store, earlier, _reporter(earlier, watch, should_stop))
    if changed:
        first = changed[min(changed)]
        watch(
            Warned(
                f"shards whose bytes changed after an earlier start wrote them: {len(changed):,}, the first: "
                f"{store.uri}/{first.path}: its CRC32C was {first.crc32c:08x} and has changed. This run writes them "
                "again now; check the disk"
            )
        )
    return frozenset(changed)


def _reporter(
    earlier: Sequence[ShardReceipt], watch: Watcher, should_stop: Callable[[], bool]
) -> Callable[[int, int], None]:
    """Reports to `watch` at once, and then every `CHECKING_S`."""
    bytes_total = sum(file.bytes for shard in earlier for file in shard.files)
    reported_s = -CHECKING_S

    def report(shards_done: int, bytes_done: int) -> None:
        nonlocal reported_s
        if should_stop():
            raise Stopped
        now_s = time.monotonic()
        if now_s - reported_s >= CHECKING_S:
            reported_s = now_s
            watch(Checking(shards_done, len(earlier), bytes_done, bytes_total))

    return report
