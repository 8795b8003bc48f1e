"""The ranges of a plan that wait for a worker, and which of them a worker reads next.

Ranges far above the usual size go first, and the parts of a compressed file count as one there, so that one straggler
does not hold up all others; the rest go in order, because a job builds its shards in order. Which worker takes which
part is left to `decoder_affinity`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container

import numpy as np

from tokenization_worker.engine.task import Worker
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.pipelines.decoder_affinity import DecoderAffinity

OVERSIZE = 2
"""A range this many times the median goes first."""


class RangeQueue:
    """All ranges but those that are `done`."""

    def __init__(self, plan: Plan, done: Container[int]) -> None:
        self._sizes = plan.cut.range_bytes
        self._affinity = DecoderAffinity(plan, done)
        self._waiting = deque(r for r in _in_order(plan, self._affinity) if r not in done)
        self._waiting_bytes = sum(int(self._sizes[r]) for r in self._waiting)

    def __bool__(self) -> bool:
        """Whether a range waits."""
        return bool(self._waiting) or self._affinity.waiting_bytes > 0

    def take(self, worker: Worker | None, *, busy: int, slots: int) -> int | None:
        """The range that an idle worker reads; None if none waits for it. `busy` of the `slots` workers have a task."""
        range_id = self._affinity.choose(worker, self._waiting_bytes, busy=busy, slots=slots)
        if range_id is None and self._waiting:
            range_id = self._waiting.popleft()
            self._waiting_bytes -= int(self._sizes[range_id])
        if range_id is not None:
            self._affinity.started(range_id)
        return range_id

    def ended(self, range_id: int, worker: Worker | None) -> None:
        """Nobody reads a range any more; `worker` has read it and holds its decoder, None: nobody does."""
        self._affinity.ended(range_id, worker)

    def gone(self, worker: Worker | None) -> None:
        """A worker is no more, and its decoder neither."""
        self._affinity.gone(worker)

    def put_back(self, range_id: int) -> None:
        """Let a range wait again, before all others."""
        if not self._affinity.put_back(range_id):
            self._waiting.appendleft(range_id)
            self._waiting_bytes += int(self._sizes[range_id])


def _in_order(plan: Plan, affinity: DecoderAffinity) -> list[int]:
    """All ranges but those that `affinity` hands out: oversize ones first, then by number."""
    sizes = plan.cut.range_bytes.copy()
    in_order = np.ones(len(sizes), dtype=np.bool_)
    for first, end in affinity.whole_files():
        sizes[first] = sizes[first:end].sum()
        in_order[first + 1 : end] = False
    typical = float(np.median(sizes[in_order])) if len(sizes) else 0.0
    by_size = np.argsort(-sizes, kind="stable")
    oversize: list[int] = by_size[in_order[by_size] & (sizes[by_size] > OVERSIZE * typical)].tolist()
    first_ones = set(oversize)
    return oversize + [r for r in np.flatnonzero(in_order).tolist() if r not in first_ones]
