"""Decides which worker reads which part of a gzip or zstd file that was cut. Does no I/O and runs nothing.

A worker that has read a part goes on with the next one: its decoder is there already. That is a lane. A worker that
begins a lane elsewhere has to inflate everything before it, so a file gets a second lane only where one worker is
less than its share of the work that is left, and only so far from the end that it pays. What is decided here costs
or saves time and nothing else.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Container
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil

import numpy as np

from tokenization_worker.engine.task import Worker
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.readers.document_batch import Compression

SKIP_SPEED = 8
"""Times as fast as a worker tokenizes, it inflates and throws away (zstd 565, gzip 600, a run 57 MB/s of text a
process on mixed text with cl100k_base, on English text twice that; 2026-11). A training counts 80 MB/s."""


@dataclass(slots=True)
class _File:
    """Ranges [first, end) are the parts of one file; `waiting`: those after the first that nobody has, in order."""

    first: int
    end: int
    part_bytes: int
    waiting: list[int]
    reading: set[int] = field(default_factory=set)
    starts: list[int] = field(default_factory=list)  # of lanes that were meant to begin together with the last one


class DecoderAffinity:
    """The parts after the first one of every file that was cut; the first ones are ranges like all others."""

    def __init__(self, plan: Plan, done: Container[int]) -> None:
        self._files = _packed_files(plan)
        self._firsts = [file.first for file in self._files]
        for file in self._files:
            file.waiting = [r for r in file.waiting if r not in done]
        self._begun = {file.first: file for file in self._files if file.first in done and file.waiting}
        self._held: dict[Worker, int] = {}  # the last part that a worker has read
        self.waiting_bytes = sum(file.part_bytes * len(file.waiting) for file in self._files)

    def whole_files(self) -> list[tuple[int, int]]:
        """(first, end) of each file's ranges."""
        return [(file.first, file.end) for file in self._files]

    def started(self, range_id: int) -> None:
        """A worker has begun with a range, whatever it is of."""
        file = self._file_of(range_id)
        if file is not None:
            file.reading.add(range_id)
            if file.waiting:
                self._begun[file.first] = file

    def ended(self, range_id: int, worker: Worker | None = None) -> None:
        """A range is done, or lost; `worker` has read it and is still there."""
        file = self._file_of(range_id)
        if file is not None:
            file.reading.discard(range_id)
        if worker is not None:
            self._held.pop(worker, None)
            if file is not None:
                self._held[worker] = range_id

    def choose(self, worker: Worker | None, other_bytes: int, *, busy: int, slots: int) -> int | None:
        """The part that an idle worker should read rather than any other range; it is no longer waiting then.

        `other_bytes`: stored bytes of all ranges that wait elsewhere. `busy` of the `slots` workers have a task.
        """
        if worker in self._held:
            following = self._following(self._held[worker])
            if following is not None:
                return self._take(following)
        total = self.waiting_bytes + other_bytes
        for file in self._begun.values():
            wanted = slots * file.part_bytes * len(file.waiting) / total
            if len(file.reading) < wanted:
                found = self._place_for_lane(file, ceil(wanted) - len(file.reading), anyone_there=busy > 0)
                if found is not None:
                    return self._take(found)
        return None

    def _following(self, range_id: int) -> int | None:
        """The next waiting part after a range, unless another worker will get there first."""
        file = self._file_of(range_id)
        if file is None:
            return None
        at = bisect_right(file.waiting, range_id)
        if at == len(file.waiting) or any(range_id < r < file.waiting[at] for r in file.reading):
            return None
        return file.waiting[at]

    def _place_for_lane(self, file: _File, n_new: int, *, anyone_there: bool) -> int | None:
        """Where the first of `n_new` more workers helps most: at the first part that nobody will come to, else within
        the longest stretch; None where it would get there too late."""
        attended = file.reading | (set(self._held.values()) if anyone_there else set())
        longest: list[int] = []
        for begin, end in stretches(file.waiting):
            if begin - 1 not in attended:
                return begin
            longest = max(longest, [end - begin, begin, end])
        starts = [r for r in file.starts if r in file.waiting]
        if not starts:
            _, begin, end = longest
            starts = [file.first + r for r in _lane_starts(begin - file.first, end - file.first, n_new)]
        file.starts = starts[1:]
        return starts[0] if starts else None

    def _take(self, range_id: int) -> int:
        file = self._file_of(range_id)
        assert file is not None
        del file.waiting[bisect_left(file.waiting, range_id)]
        self.waiting_bytes -= file.part_bytes
        if not file.waiting:
            self._begun.pop(file.first, None)
        return range_id

    def put_back(self, range_id: int) -> bool:
        """Let a part wait again whose worker was lost; False if the range is none of ours."""
        file = self._file_of(range_id)
        if file is None or range_id == file.first:
            return False
        insort(file.waiting, range_id)
        self.waiting_bytes += file.part_bytes
        self._begun[file.first] = file
        return True

    def gone(self, worker: Worker | None) -> None:
        """A worker is no more: nobody has the decoder of the part that it has read last."""
        self._held.pop(worker, None)

    def _file_of(self, range_id: int) -> _File | None:
        at = bisect_right(self._firsts, range_id) - 1
        return self._files[at] if at >= 0 and range_id < self._files[at].end else None


def _packed_files(plan: Plan) -> list[_File]:
    """The compressed files that were cut; each part is a range of its own."""
    cut = plan.cut
    starts = cut.slice_start[cut.range_slice[:-1]]
    files = cut.slice_file[cut.range_slice[:-1]]
    found: list[_File] = []
    for range_id in np.flatnonzero(starts > 0).tolist():
        kind = plan.kinds[files[range_id]]
        if kind is None or kind.compression is Compression.NONE:
            continue
        if found and found[-1].end == range_id and files[found[-1].first] == files[range_id]:
            found[-1].waiting.append(range_id)
            found[-1].end += 1
        else:
            found.append(_File(range_id - 1, range_id + 1, int(cut.range_bytes[range_id]), [range_id]))
    return found


def _lane_starts(begin: int, end: int, n_new: int) -> list[int]:
    """Where `n_new` workers begin that help the one who reads on from `begin`, so that all are done at one time.

    Parts are numbered from the file's first. In the time t in which the one before them reads t parts, a worker that
    begins at s inflates s parts and reads t - s / SKIP_SPEED: the next one begins at s + t - s / SKIP_SPEED, and the
    last one's end is the `end`.
    """
    q = 1 - 1 / SKIP_SPEED
    power = q**n_new
    t = (end - begin * power) / (power + SKIP_SPEED * (1 - power))
    starts: list[int] = []
    place = begin + t
    for _ in range(n_new):
        if ceil(place) < end and ceil(place) not in starts:
            starts.append(ceil(place))
        place = place * q + t
    return starts


def stretches(waiting: list[int]) -> list[tuple[int, int]]:
    """[begin, end) of the numbers of a sorted list that follow each other."""
    breaks = [i for i in range(1, len(waiting)) if waiting[i] != waiting[i - 1] + 1]
    borders = [0, *breaks, len(waiting)]
    return [(waiting[a], waiting[b - 1] + 1) for a, b in pairwise(borders) if a < b]
