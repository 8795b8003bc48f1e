"""Which worker reads which part: each is read once, one huge file keeps all workers busy, and little is skipped."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.pipelines.decoder_affinity import SKIP_SPEED, DecoderAffinity
from tokenization_worker.pipelines.range_queue import RangeQueue, _in_order
from tokenization_worker.planning.cut import MOST_PACKED_PIECES, Inside, cut_files
from tokenization_worker.readers.document_batch import Compression, FileKind
from tokenization_worker.storage.source_file import SourceFile

PACKED = FileKind(SourceFormat.JSONL, Compression.ZSTD)
PLAIN = FileKind(SourceFormat.JSONL, Compression.NONE)


def plan_of(sizes: list[int], range_bytes: int, kind: FileKind = PACKED) -> Plan:
    """Files of these stored sizes that hold three times as much."""
    files = tuple(SourceFile(f"/{number:06d}", size, "v") for number, size in enumerate(sizes))
    content = 3 if kind is PACKED else 0
    inside = {True: lambda file: Inside(kind, content_bytes=content * file.size), False: lambda _: Inside(kind, True)}
    cut, kinds = cut_files(files, range_bytes, inside[kind is PACKED])
    return Plan("plan", "data", "run", {}, files, kinds, cut)


def test_a_compressed_file_is_cut_by_what_it_holds_and_its_last_piece_has_no_end() -> None:
    plan = plan_of([5, 1000, 7], 300)
    assert [(s.file, s.start, s.end) for r in range(plan.n_ranges) for s in plan.slices(r)] == [
        (0, 0, -1),
        (1, 0, 750),
        (1, 750, 1500),
        (1, 1500, 2250),
        (1, 2250, -1),
        (2, 0, -1),
    ]
    assert plan.cut.range_bytes.tolist() == [5, 250, 250, 250, 250, 7]


@pytest.mark.parametrize(
    ("size", "content", "pieces"),
    [(1001, 5000, 11), (1001, 3, 3), (10**12, 3 * 10**12, MOST_PACKED_PIECES), (1001, 10**18, 11), (1001, 0, 1)],
    ids=["as its size says", "holds next to nothing", "50 GB", "said to hold a million times more", "size not known"],
)
def test_the_number_of_pieces_follows_what_is_stored_and_has_a_limit(size: int, content: int, pieces: int) -> None:
    cut, _ = cut_files([SourceFile("/f", size, "v")], 100, lambda _: Inside(PACKED, content_bytes=content))
    assert len(cut.slice_file) == pieces
    assert cut.slice_end[-1] == -1
    assert (np.diff(cut.slice_start) > 0).all()
    assert cut.slice_start[1:].tolist() == cut.slice_end[:-1].tolist()
    assert cut.range_bytes.sum() == size


@dataclass
class Outcome:
    """`time`: of the last worker to end; `skipped`: bytes of content inflated and thrown away."""

    time: float
    skipped: float
    order: list[int]


def simulate(plan: Plan, workers: int, *, done: frozenset[int] = frozenset(), chance: random.Random) -> Outcome:
    """Workers that take stored bytes as seconds, a little more or less, and inflate `SKIP_SPEED` times as fast."""
    queue = RangeQueue(plan, done)
    sizes = plan.cut.range_bytes
    outcome = Outcome(0.0, 0.0, [])
    holds: dict[int, int] = {}
    running: list[tuple[float, int, int]] = []
    idle = list(range(workers))
    now = 0.0
    while True:
        for worker in reversed(list(idle)):  # first the one that has just ended a task, as the run does
            range_id = queue.take(("here", worker), busy=len(running), slots=workers)
            if range_id is None:
                continue
            idle.remove(worker)
            outcome.order.append(range_id)
            skipped = skipped_bytes(plan, holds.pop(worker, None), range_id)
            outcome.skipped += skipped
            seconds = sizes[range_id] * chance.uniform(0.9, 1.1) + skipped / SKIP_SPEED
            heapq.heappush(running, (now + seconds, worker, range_id))
        if not running:
            assert not queue
            return outcome
        now, worker, range_id = heapq.heappop(running)
        outcome.time = now
        queue.ended(range_id, ("here", worker))
        holds[worker] = range_id
        idle.append(worker)


def skipped_bytes(plan: Plan, held: int | None, range_id: int) -> float:
    """Stored bytes between what the worker has read last, or the start of the file, and a range."""
    [first] = plan.cut.range_slice[[range_id]].tolist()
    file = plan.cut.slice_file[first]
    is_packed = plan.kinds[file] is PACKED
    pieces = np.flatnonzero(plan.cut.slice_file[plan.cut.range_slice[:-1]] == file)
    begin = int(pieces[0])
    if held is not None and begin <= held < range_id:
        begin = held + 1
    return float(plan.cut.range_bytes[begin:range_id].sum()) if is_packed else 0.0


@given(
    sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=12),
    range_bytes=st.integers(50, 2000),
    workers=st.integers(1, 20),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
@settings(max_examples=300)
def test_each_missing_range_is_handed_out_once_whatever_is_done(
    sizes: list[int], range_bytes: int, workers: int, seed: int, data: st.DataObject
) -> None:
    plan = plan_of(sizes, range_bytes)
    done = data.draw(st.frozensets(st.integers(0, plan.n_ranges - 1)))
    outcome = simulate(plan, workers, done=done, chance=random.Random(seed))
    assert sorted(outcome.order) == sorted(set(range(plan.n_ranges)) - done)


SMALL = 100


@pytest.mark.parametrize("place", ["early", "late"])
@pytest.mark.parametrize(
    ("workers", "others", "bound"),
    [(2, 20, 1.15), (2, 100, 1.1), (2, 1000, 1.05), (4, 100, 1.2), (8, 100, 1.6), (8, 2000, 1.1), (16, 3000, 1.1)],
)
def test_one_file_200_times_the_others_takes_little_longer_than_equal_files(
    workers: int, others: int, bound: float, place: str
) -> None:
    sizes = [SMALL] * others
    sizes.insert(1 if place == "early" else others, 200 * SMALL)
    total = sum(sizes)
    plan = plan_of(sizes, total // (16 * workers))
    outcome = simulate(plan, workers, chance=random.Random(1))
    assert outcome.time / (total / workers) < bound


@pytest.mark.parametrize("workers", [2, 4, 8, 16])
def test_a_single_file_keeps_workers_busy_as_far_as_inflating_allows(workers: int) -> None:
    """Nobody can be done before all of the file is inflated once, at the least."""
    size = 1_000_000
    outcome = simulate(plan_of([size], size // (16 * workers)), workers, chance=random.Random(1))
    best = size / (SKIP_SPEED * (1 - (1 - 1 / SKIP_SPEED) ** workers))  # with pieces of any size
    assert best <= outcome.time * 1.1
    assert outcome.time < 1.35 * best
    assert outcome.skipped < size * workers * 0.6


def test_a_corpus_of_many_files_of_several_ranges_is_inflated_once() -> None:
    sizes = [1000] * 200
    outcome = simulate(plan_of(sizes, 256), 16, chance=random.Random(1))
    assert outcome.skipped < 0.05 * sum(sizes)
    assert outcome.time < 1.1 * sum(sizes) / 16


def test_a_restart_goes_on_where_each_lane_stopped() -> None:
    plan = plan_of([32_000], 1000)
    done = frozenset([*range(10), *range(16, 22)])
    outcome = simulate(plan, 2, done=done, chance=random.Random(1))
    assert outcome.order[:2] == [10, 22]


def test_a_lost_piece_waits_again() -> None:
    plan = plan_of([4000], 1000)
    affinity = DecoderAffinity(plan, ())
    affinity.started(0)
    affinity.ended(0, ("a", 1))
    assert affinity.choose(("a", 1), 0, busy=0, slots=2) == 1
    affinity.started(1)
    affinity.ended(1)
    assert affinity.put_back(1)
    assert affinity.choose(("b", 1), 0, busy=0, slots=2) == 1
    assert not affinity.put_back(0), "the first piece of a file is a range like all others"
    assert not affinity.put_back(99)


def test_the_lane_of_a_worker_that_died_is_gone_on_with_while_others_are_busy() -> None:
    affinity = DecoderAffinity(plan_of([8000], 1000), ())
    affinity.started(0)
    affinity.ended(0, ("a", 1))
    assert affinity.choose(("a", 1), 0, busy=1, slots=2) == 1
    affinity.started(1)
    affinity.ended(1)
    assert affinity.put_back(1)
    affinity.gone(("a", 1))
    assert affinity.choose(("b", 1), 0, busy=1, slots=2) == 1


def test_the_lane_of_a_worker_that_died_at_other_work_is_gone_on_with() -> None:
    affinity = DecoderAffinity(plan_of([32000], 1000), ())
    affinity.started(0)
    affinity.ended(0, ("a", 1))  # and is given a shard to build, which kills it
    affinity.gone(("a", 1))
    assert affinity.choose(("b", 1), 0, busy=1, slots=2) == 1


def test_a_worker_comes_back_to_its_file_after_a_build() -> None:
    plan = plan_of([8000], 1000)
    affinity = DecoderAffinity(plan, ())
    affinity.started(0)
    affinity.ended(0, ("a", 1))  # and is given a shard to build
    taken = affinity.choose(("b", 1), 0, busy=1, slots=2)
    assert taken is not None
    assert taken > 1, "another worker leaves it what its decoder can go on with"
    assert affinity.choose(("a", 1), 0, busy=1, slots=2) == 1


def test_pieces_of_plain_files_have_no_lanes() -> None:
    plan = plan_of([1000, 1000], 100, PLAIN)
    affinity = DecoderAffinity(plan, ())
    assert affinity.whole_files() == []
    assert _in_order(plan, affinity) == list(range(20))


def test_a_huge_compressed_file_goes_first_and_files_of_one_size_go_in_order() -> None:
    plan = plan_of([100, 100, 900, 100, 100], 100)
    order = _in_order(plan, DecoderAffinity(plan, ()))
    assert order[0] == 2
    assert order[1:] == [0, 1, 11, 12]
    even = plan_of([900] * 5, 100)
    assert _in_order(even, DecoderAffinity(even, ())) == [0, 9, 18, 27, 36]
