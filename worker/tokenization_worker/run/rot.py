"""Shards that an earlier start has written, read again before the index vouches for them.

A start takes the shards of earlier ones by their names, sizes and times. A disk may have lost bits of them since; so
a start reads them once more before it writes the index. Shards of the start's own are believed: it had their bytes in
memory when it computed their checksums. This module reports what it found; the run writes such shards again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.events import Checking, Warned, Watcher
from tokenization_worker.output.ledger.receipts import ShardReceipt
from tokenization_worker.output.shard_check import find_rotten_shards
from tokenization_worker.storage.base import Store

CHECKING_S = 10.0
"""Between two words on a reading that goes on."""


def find_rot(
    store: Store, earlier: Sequence[ShardReceipt], watch: Watcher, should_stop: Callable[[], bool]
) -> frozenset[tuple[str, int]]:
    """(split, index) of the shards among those of `earlier` starts that must be written again; raises `Stopped`."""
    rotten = find_rotten_shards(store, earlier, _teller(earlier, watch, should_stop))
    if rotten:
        first = rotten[min(rotten)]
        watch(
            Warned(
                f"shards whose bytes changed after an earlier start wrote them: {len(rotten):,}, the first: "
                f"{store.uri}/{first.path}: its CRC32C was {first.crc32c:08x} and has changed. This run writes them "
                "again now; check the disk"
            )
        )
    return frozenset(rotten)


def _teller(
    earlier: Sequence[ShardReceipt], watch: Watcher, should_stop: Callable[[], bool]
) -> Callable[[int, int], None]:
    """Tells `watch` at once, and then every `CHECKING_S`."""
    bytes_total = sum(file.bytes for shard in earlier for file in shard.files)
    told_s = -CHECKING_S

    def tell(shards_done: int, bytes_done: int) -> None:
        nonlocal told_s
        if should_stop():
            raise Stopped
        now_s = time.monotonic()
        if now_s - told_s >= CHECKING_S:
            told_s = now_s
            watch(Checking(shards_done, len(earlier), bytes_done, bytes_total))

    return tell
