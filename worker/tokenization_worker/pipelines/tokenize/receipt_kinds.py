"""The kinds of receipts that a tokenize run writes: of ranges, of scattered windows, and of shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, repeat
from operator import add
from typing import Any

from tokenization_worker.output import layout
from tokenization_worker.output.layout import ScatterKey, ShardKey
from tokenization_worker.output.ledger.ledger import Ledger
from tokenization_worker.output.ledger.receipts import RangeReceipt, ScatterReceipt, ShardReceipt
from tokenization_worker.output.naming import Naming, is_by_hash, planned_groups, planned_shard_tokens, planned_streams
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.output.scan import RECORD


class _RangeKind:
    """Receipts of ranges by number."""

    folder = layout.RANGE_RECEIPTS

    def pattern(self, plan: Plan) -> str:
        return RECORD

    def name_starts(self, plan: Plan, found: Ledger) -> list[str]:
        return range_names(plan)

    def decode(self, record: dict[str, Any]) -> RangeReceipt:
        return RangeReceipt.from_dict(record)

    def key_of(self, receipt: RangeReceipt) -> int:
        return receipt.range_id

    def make_check(self, plan: Plan, epoch: int) -> Callable[[str, RangeReceipt], None]:
        borders = plan.cut.range_slice.tolist()
        slice_files = plan.cut.slice_file
        splits = plan.data["output"]["splits"]
        n_streams = len(splits) if is_by_hash(splits) else 1

        def check(path: str, receipt: RangeReceipt) -> None:
            number = receipt.range_id
            if path != layout.range_receipt_path(receipt.epoch, number) or receipt.epoch != epoch:
                raise ValueError(f"it is the receipt of range {number} in epoch {receipt.epoch}")
            if number + 1 >= len(borders):
                raise ValueError(f"the plan has {len(borders) - 1} ranges")
            files = slice_files[borders[number] : borders[number + 1]].tolist()
            if [part.file for part in receipt.slices] != files:
                raise ValueError("its slices are not those of the plan")
            if any(len(part.tokens) != n_streams for part in receipt.slices):
                raise ValueError(f"its slices do not have the plan's {n_streams} streams")

        return check


class _ShardKind:
    """Receipts of shards. They are read after those of ranges."""

    folder = layout.SHARD_RECEIPTS

    def pattern(self, plan: Plan) -> str:
        return f"[^/]+/[^/]+/{RECORD}" if planned_groups(plan.data) else f"[^/]+/{RECORD}"

    def name_starts(self, plan: Plan, found: Ledger) -> Iterable[str]:
        return _possible_shards(plan, found.receipts(RANGES).values())

    def decode(self, record: dict[str, Any]) -> ShardReceipt:
        return ShardReceipt.from_dict(record)

    def key_of(self, receipt: ShardReceipt) -> ShardKey:
        return receipt.key

    def make_check(self, plan: Plan, epoch: int) -> Callable[[str, ShardReceipt], None]:
        naming = Naming.planned(plan.data)
        groups = naming.groups or ("",)
        splits = plan.data["output"]["splits"]
        # The first shard of each split, counted over all of them; None: they are not counted.
        counted = accumulate((split["shards"] or 0 for split in splits[:-1]), initial=0)
        by_hash = is_by_hash(splits)
        firsts = {split["name"]: None if by_hash else first for split, first in zip(splits, counted, strict=True)}

        def check(path: str, receipt: ShardReceipt) -> None:
            split, index, group = receipt.key
            if path != layout.shard_receipt_path(receipt.epoch, *receipt.key) or receipt.epoch != epoch:
                raise ValueError(f"it is the receipt of {receipt.key.words} in epoch {receipt.epoch}")
            if split not in firsts:
                raise ValueError(f"the plan has no split {split!r}")
            if group not in groups:
                raise ValueError(f"the plan has no group {group!r} with shards of its own")
            first = firsts[split]
            shard = -1 if first is None else first + index
            if first is not None and group != groups[0]:
                shard = max(shard, receipt.shard)  # how many shards the groups before have is not known here
            named = naming.files(split=split, index=index, shard=shard, group=group)
            expected = [file.path for file in named]
            paths = [file.path for file in receipt.files]
            if (receipt.shard, paths) != (shard, expected):
                found = f"it is of shard {receipt.shard} at {', '.join(map(repr, paths)):.200}"
                raise ValueError(f"{found}, expected shard {shard} at {', '.join(expected)}")

        return check


class _ScatterKind:
    """Receipts of scattered windows. They are read after those of ranges."""

    folder = layout.SCATTER_RECEIPTS

    def pattern(self, plan: Plan) -> str:
        return f"[0-9]{{4,}}/{RECORD}"

    def name_starts(self, plan: Plan, found: Ledger) -> Iterable[str]:
        return scatter_names(plan)

    def decode(self, record: dict[str, Any]) -> ScatterReceipt:
        return ScatterReceipt.from_dict(record)

    def key_of(self, receipt: ScatterReceipt) -> ScatterKey:
        return receipt.key

    def make_check(self, plan: Plan, epoch: int) -> Callable[[str, ScatterReceipt], None]:
        n_streams = planned_streams(plan.data)

        def check(path: str, receipt: ScatterReceipt) -> None:
            if path != layout.scatter_receipt_path(receipt.epoch, receipt.key) or receipt.epoch != epoch:
                raise ValueError(f"it is the receipt of {receipt.key.words} in epoch {receipt.epoch}")
            if plan.scattering is None or receipt.stream >= n_streams:
                raise ValueError(f"the plan has no stream {receipt.stream} that is shuffled")
            if len(receipt.cells) != plan.scattering.n_cells or int(receipt.cells.sum()) != receipt.tokens:
                raise ValueError(f"its cells are not {plan.scattering.n_cells} with {receipt.tokens:,} tokens in all")

        return check


RANGES = _RangeKind()
SCATTERS = _ScatterKind()
SHARDS = _ShardKind()


def range_names(plan: Plan) -> list[str]:
    """What the names of files begin with of which each range may have one."""
    return [f"{range_id:08d}" for range_id in range(plan.n_ranges)]


def scatter_names(plan: Plan) -> list[str]:
    """What the names of files begin with of which each stream may have some; nothing where nothing is shuffled."""
    return [] if plan.scattering is None else [f"{stream:04d}/" for stream in range(planned_streams(plan.data))]


def _most_shards(output: dict[str, Any], tokens: int, n_files: int) -> int:
    """That so many tokens of documents may fill: a row's padding is less than its length."""
    padding = n_files * (output["sequence"]["length"] - 1) if "sequence" in output else 0
    return (tokens + padding) // planned_shard_tokens(output) + 1


def _possible_shards(plan: Plan, ranges: Iterable[RangeReceipt]) -> Iterator[str]:
    """Group, split and number of every shard that these ranges may have filled: a listing needs to know names."""
    groups: dict[str, list[int]] = {}
    has_groups = bool(planned_groups(plan.data))
    for receipt in ranges:
        for result in receipt.slices:
            group = plan.files[result.file].group if has_groups else ""
            groups[group] = list(map(add, groups.get(group) or repeat(0), result.tokens))
    output = plan.data["output"]
    for group, tokens in groups.items():
        counts = [_most_shards(output, total, len(plan.files)) for total in tokens]  # of each stream
        for number, split in enumerate(output["splits"]):
            count = counts[number] if len(counts) > 1 else min(counts[0], split["shards"] or counts[0])
            folder = f"{group}/{split['name']}" if group else split["name"]
            yield from (f"{folder}/{index:08d}" for index in range(count))
