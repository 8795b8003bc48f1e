"""All shards together are the live tokens in order, each once, whatever the cut and the order of receipts."""

from __future__ import annotations

import random
from base64 import b64encode
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenization_worker.api.data import (
    DType,
    OutputSpec,
    Packing,
    Scope,
    SequenceSpec,
    ShuffleSpec,
    ShuffleUnit,
    SplitSpec,
)
from tokenization_worker.errors import SpecError
from tokenization_worker.output.ledger.receipts import RangeReceipt, ScatterReceipt, SliceResult
from tokenization_worker.output.plan_file import Cut, Scattering
from tokenization_worker.pipelines.tokenize.shard_planner import ShardPlan, ShardPlanner
from tokenization_worker.pipelines.tokenize.shuffle_planner import ShufflePlanner
from tokenization_worker.planning.splits import Streams

Token = tuple[int, int, int, int]
"""Names a token: file, slice of the plan, stream, number within the slice and stream."""


@dataclass(frozen=True)
class World:
    """A plan and what its slices gave: `tokens[slice][stream]`, `damaged` slices; `order` of the receipts."""

    streams: Streams
    shard_tokens: int
    slice_file: list[int]
    range_slice: list[int]
    tokens: list[list[int]]
    damaged: list[bool]
    order: list[int]

    @property
    def n_files(self) -> int:
        return self.slice_file[-1] + 1

    def cut(self) -> Cut:
        n_slices = len(self.slice_file)
        return Cut(
            slice_file=np.array(self.slice_file, dtype=np.int32),
            slice_start=np.zeros(n_slices, dtype=np.int64),
            slice_end=np.full(n_slices, -1, dtype=np.int64),
            range_slice=np.array(self.range_slice, dtype=np.int64),
            range_bytes=np.ones(len(self.range_slice) - 1, dtype=np.int64),
        )

    def receipt(self, range_id: int) -> RangeReceipt:
        first, end = self.range_slice[range_id : range_id + 2]
        return RangeReceipt(
            plan_id="plan",
            epoch=0,
            range_id=range_id,
            slices=tuple(self._result(number) for number in range(first, end)),
            segment_digest=f"segment of {range_id}",
            segment_bytes=0,
            quarantine_digest="",
            text_bytes=0,
            source_bytes=0,
            stored_bytes=0,
            samples=0,
            engine="reference",
            node="here",
            pid=1,
            seconds=0.0,
        )

    def _result(self, number: int) -> SliceResult:
        counts = [0] * self.streams.count if self.damaged[number] else self.tokens[number]
        outcome = "CorruptFile" if self.damaged[number] else "Read"
        return SliceResult(self.slice_file[number], outcome, "", tuple(counts), tuple(counts), 0, {}, "")

    def segments(self) -> dict[tuple[int, int], list[Token]]:
        """What every range's segment holds for every stream: the tokens of its slices that were read."""
        held: dict[tuple[int, int], list[Token]] = {}
        for range_id in range(len(self.range_slice) - 1):
            for stream in range(self.streams.count):
                held[range_id, stream] = [
                    token
                    for number in range(*self.range_slice[range_id : range_id + 2])
                    if not self.damaged[number]
                    for token in self._tokens_of(number, stream)
                ]
        return held

    def live(self, stream: int) -> list[Token]:
        """The tokens of a stream that the dataset must hold: of files without any damaged slice, in order."""
        lost = {file for file, damaged in zip(self.slice_file, self.damaged, strict=True) if damaged}
        return [
            token
            for number, file in enumerate(self.slice_file)
            if file not in lost
            for token in self._tokens_of(number, stream)
        ]

    def _tokens_of(self, number: int, stream: int) -> list[Token]:
        return [(self.slice_file[number], number, stream, i) for i in range(self.tokens[number][stream])]


LEADING = Streams((SplitSpec("test", 2, None), SplitSpec("validation", 1, None), SplitSpec("train", None, None)))
BY_HASH = Streams(
    (SplitSpec("a", None, Fraction(1, 3)), SplitSpec("b", None, Fraction(1, 5)), SplitSpec("c", None, None))
)
ALONE = Streams((SplitSpec("train", None, None),))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    streams = draw(st.sampled_from([ALONE, LEADING, BY_HASH]))
    slices_of_files = draw(st.lists(st.integers(1, 4), min_size=1, max_size=8))
    slice_file = [file for file, count in enumerate(slices_of_files) for _ in range(count)]
    n_slices = len(slice_file)
    borders = draw(st.sets(st.integers(1, n_slices - 1))) if n_slices > 1 else set()
    counts = st.lists(st.integers(0, 9), min_size=streams.count, max_size=streams.count)
    n_ranges = len(borders) + 1
    return World(
        streams=streams,
        shard_tokens=draw(st.integers(1, 12)),
        slice_file=slice_file,
        range_slice=[0, *sorted(borders), n_slices],
        tokens=draw(st.lists(counts, min_size=n_slices, max_size=n_slices)),
        damaged=draw(st.lists(st.sampled_from([False, False, False, True]), min_size=n_slices, max_size=n_slices)),
        order=draw(st.permutations(range(n_ranges))),
    )


def assemble(world: World, order: list[int]) -> tuple[ShardPlanner, list[ShardPlan]]:
    planner = ShardPlanner(world.cut(), world.n_files, world.streams, world.shard_tokens)
    plans = [plan for range_id in order for plan in planner.add(world.receipt(range_id))]
    return planner, plans


def place(plan: ShardPlan) -> tuple[str, int]:
    return plan.name.split, plan.name.index


def stream_of(world: World, plan: ShardPlan) -> int:
    names = [split.name for split in world.streams.splits]
    return names.index(plan.name.split) if world.streams.by_hash else 0


@given(worlds())
@settings(max_examples=400)
def test_all_shards_together_are_the_live_tokens_in_order_each_once(world: World) -> None:
    planner, plans = assemble(world, world.order)
    segments = world.segments()
    assert planner.is_complete
    for stream in range(world.streams.count):
        mine = [plan for plan in plans if stream_of(world, plan) == stream]
        held = [
            token
            for plan in mine
            for span in plan.spans
            for token in segments[span.range_id, span.stream][span.start : span.end]
        ]
        assert held == world.live(stream)
        assert all(span.start < span.end for plan in mine for span in plan.spans)
        assert [plan.tokens for plan in mine[:-1]] == [world.shard_tokens] * len(mine[:-1])
        assert all(0 < plan.tokens <= world.shard_tokens for plan in mine)
        assert planner.shard_counts[stream] == len(mine)


@given(worlds())
@settings(max_examples=200)
def test_the_order_of_receipts_changes_nothing(world: World) -> None:
    _, in_order = assemble(world, sorted(world.order))
    _, as_drawn = assemble(world, world.order)
    assert sorted(in_order, key=place) == sorted(as_drawn, key=place)


@given(worlds())
@settings(max_examples=200)
def test_another_cut_of_the_same_files_gives_shards_of_the_same_tokens(world: World) -> None:
    """One range for everything, or one for each slice: what a shard holds is the same."""
    n_slices = len(world.slice_file)
    contents = set()
    for range_slice in ([0, n_slices], list(range(n_slices + 1)), world.range_slice):
        cut = World(**{**world.__dict__, "range_slice": range_slice, "order": list(range(len(range_slice) - 1))})
        _, plans = assemble(cut, cut.order)
        segments = cut.segments()
        contents.add(
            tuple(
                (plan.name, token)
                for plan in sorted(plans, key=place)
                for span in plan.spans
                for token in segments[span.range_id, span.stream][span.start : span.end]
            )
        )
    assert len(contents) == 1


@given(worlds())
@settings(max_examples=200)
def test_names_count_up_within_their_split_and_over_leading_splits(world: World) -> None:
    _, plans = assemble(world, world.order)
    for split in world.streams.splits:
        assert [plan.name.index for plan in plans if plan.name.split == split.name] == list(
            range(sum(plan.name.split == split.name for plan in plans))
        )
    if not world.streams.by_hash:
        assert [plan.name.shard for plan in plans] == list(range(len(plans)))
        wanted = [name for split in world.streams.splits[:-1] for name in [split.name] * (split.shards or 0)]
        splits = [plan.name.split for plan in plans]
        assert splits == (wanted + [world.streams.splits[-1].name] * len(splits))[: len(splits)]


@given(worlds(), st.data())
@settings(max_examples=400)
def test_groups_are_runs_of_their_own_that_share_no_shard(world: World, data: st.DataObject) -> None:
    borders = data.draw(st.sets(st.integers(1, world.n_files - 1))) if world.n_files > 1 else set()
    ends = [*sorted(borders), world.n_files]
    groups = tuple((f"g{end}", end - first) for first, end in pairwise([0, *ends]))
    planner = ShardPlanner(world.cut(), world.n_files, world.streams, world.shard_tokens, groups=groups)
    plans = [plan for range_id in world.order for plan in planner.add(world.receipt(range_id))]
    segments = world.segments()
    assert planner.is_complete
    assert sum(planner.shard_counts) == len(plans)
    assert len({plan.name.key for plan in plans}) == len(plans)
    for (name, _), (first, end) in zip(groups, pairwise([0, *ends]), strict=True):
        mine = [plan for plan in plans if plan.name.group == name]
        for stream in range(world.streams.count):
            shards = [plan for plan in mine if stream_of(world, plan) == stream]
            held = [
                token
                for plan in shards
                for span in plan.spans
                for token in segments[span.range_id, span.stream][span.start : span.end]
            ]
            assert held == [token for token in world.live(stream) if first <= token[0] < end]
            assert [plan.tokens for plan in shards[:-1]] == [world.shard_tokens] * len(shards[:-1])
        for split in world.streams.splits:
            numbers = [plan.name.index for plan in mine if plan.name.split == split.name]
            assert numbers == list(range(len(numbers)))
    if not world.streams.by_hash:
        assert [plan.name.shard for plan in plans] == list(range(len(plans)))


@given(worlds())
@settings(max_examples=200)
def test_a_shard_is_planned_as_soon_as_complete_files_fill_it_and_never_before(world: World) -> None:
    """Before every range of a file has its receipt, nothing of it may be in a shard: it may turn out damaged."""
    planner = ShardPlanner(world.cut(), world.n_files, world.streams, world.shard_tokens)
    there: set[int] = set()
    planned = [0] * world.streams.count
    for range_id in world.order:
        new = planner.add(world.receipt(range_id))
        there.add(range_id)
        missing = [
            world.slice_file[number]
            for r in range(len(world.order))
            if r not in there
            for number in range(*world.range_slice[r : r + 2])
        ]
        settled = min(missing, default=world.n_files)
        for plan in new:
            planned[stream_of(world, plan)] += plan.tokens
        for stream in range(world.streams.count):
            known = sum(1 for file, *_ in world.live(stream) if file < settled)
            assert planned[stream] == (known if not missing else known // world.shard_tokens * world.shard_tokens)


@given(worlds(), st.integers(0, 2**32))
@settings(max_examples=200)
def test_no_range_is_given_up_while_a_shard_to_come_needs_it(world: World, seed: int) -> None:
    """What `first_needed_range` says at any time holds for every shard that is planned later."""
    order = list(world.order)
    random.Random(seed).shuffle(order)
    planner = ShardPlanner(world.cut(), world.n_files, world.streams, world.shard_tokens)
    first_needed = 0
    for range_id in order:
        for plan in planner.add(world.receipt(range_id)):
            assert min(span.range_id for span in plan.spans) >= first_needed
        assert planner.first_needed_range() >= first_needed
        first_needed = planner.first_needed_range()
    assert first_needed == len(order)


@pytest.mark.parametrize(("streams", "counts"), [(LEADING, [3]), (BY_HASH, [1, 0, 1])], ids=["leading", "by-hash"])
def test_an_empty_split_has_a_way_out_that_this_output_allows(streams: Streams, counts: list[int]) -> None:
    with pytest.raises(SpecError, match=r"SplitEmpty: .*\n  next: .*write elsewhere or `tokjob clean` this output"):
        streams.require_all_filled(counts)


def scattered(stream: int, number: int, tokens: int) -> ScatterReceipt:
    cells = b64encode(np.array([tokens], "<u4").tobytes()).decode()
    return ScatterReceipt("plan", 0, stream, number, 1, tokens, cells, "digest", 1, "here", 1, 0.0)


def test_shards_of_shuffled_groups_count_on_whichever_is_scattered_first() -> None:
    """Windows of packed rows have more tokens than the stream there: the padding of their rows."""
    world = World(ALONE, 10, [0, 1], [0, 1, 2], [[6], [9]], [False, False], [0, 1])
    rows = SequenceSpec(5, Packing.BEST_FIT, Scope.STREAM, None, None)
    output = OutputSpec("out", (), DType.AUTO, 10, "", ALONE.splits, rows, ShuffleSpec(0, ShuffleUnit.ROW))
    planner = ShufflePlanner(world.cut(), 2, ALONE, output, Scattering(4, 1), (("a", 1), ("b", 1)))
    windows = [window.key for range_id in (1, 0) for window in planner.add(world.receipt(range_id))]
    assert windows == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
    for number in range(3):
        planner.add_scatter(scattered(1, number, 5))
    assert list(planner.take_streams()) == []
    planner.add_scatter(scattered(0, 0, 10))
    assert list(planner.take_streams()) == []
    planner.add_scatter(scattered(0, 1, 15))
    found = [
        (stream, [(shard.name.shard, shard.tokens) for shard in shards]) for stream, shards in planner.take_streams()
    ]
    assert found == [(0, [(0, 10), (1, 10), (2, 5)]), (1, [(3, 10), (4, 5)])]
    assert planner.is_complete
