"""Finds what a complete dataset lacks, and which library versions may write it.

A shard that is written again must be the one that the shards table names. The libraries that may write it are those of
the run's first epoch, if the run sealed that epoch. An epoch without a seal was written later, to repair a dataset that
was moved without its own: there the index says which versions wrote the tokens. Receipts of such an earlier repair
count only where they are of these tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenization_worker.errors import ChangedError
from tokenization_worker.events import Warned, Watcher
from tokenization_worker.host.parallel import map_at_once
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import Disagreement
from tokenization_worker.output.index import Index, recorded_versions
from tokenization_worker.output.layout import ShardKey
from tokenization_worker.output.ledger.epochs import Epoch, current_epoch
from tokenization_worker.output.ledger.receipts import RangeReceipt, ShardReceipt
from tokenization_worker.output.ledger.version_samples import read_samples, require_proof, tokenizer_changed
from tokenization_worker.output.shard_check import find_mismatched_shards
from tokenization_worker.output.tables import ShardSums, read_shard_sums
from tokenization_worker.output.versions import describe_versions, find_changes, same_as_any
from tokenization_worker.pipelines.tokenize.ledger import TokenizeLedger
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.tokenizers.base import Tokenizer


@dataclass(frozen=True, slots=True)
class Repair:
    """`expected`: the mismatched shards (split, index) as they must be. `versions`: of libraries, with which this
    process's are compared. `is_known`: epoch or index names them; otherwise they are those of this process. `trusted`:
    versions whose receipts tell of the dataset's tokens; None where the whole ledger is the one of its run."""

    expected: dict[ShardKey, ShardSums]
    versions: str
    is_known: bool
    trusted: tuple[str, ...] | None


def plan_repair(store: Store, index: Index, tokenizer: Tokenizer, watch: Watcher, *, has_parquet: bool) -> Repair:
    """Compare every shard of a complete dataset with the shards table; nothing is written.

    Raises `ChangedError("TokenizerChanged")` where shards are mismatched, and nothing can prove that this process's
    libraries give their tokens. `watch` is told where the index names no versions.
    """
    expected = read_shard_sums(store, find_mismatched_shards(store))
    now = describe_versions(tokenizer.libraries, has_parquet=has_parquet)
    repair = _repair(store, index, expected, now)
    if expected:
        require_proof(store, repair.versions, now)
        if not repair.is_known:
            watch(Warned(_unknown_versions(now)))
    return repair


def _repair(store: Store, index: Index, expected: dict[ShardKey, ShardSums], now: str) -> Repair:
    epoch = _sealed_epoch(store)
    if epoch is not None and epoch.versions:
        return Repair(expected, epoch.versions, is_known=True, trusted=None)
    recorded = recorded_versions(index)
    versions = _versions_to_compare(store, recorded, now)
    trusted = (*recorded, versions, now) if epoch is None else None
    return Repair(expected, versions, is_known=bool(recorded), trusted=trusted)


def _sealed_epoch(store: Store) -> Epoch | None:
    """The epoch of the run that wrote a complete dataset; None where it was moved without its own."""
    try:
        epoch = current_epoch(store)
    except NotFound:
        return None
    return epoch if epoch.sealed else None


def _versions_to_compare(store: Store, recorded: tuple[str, ...], now: str) -> str:
    """Those of this process where they wrote the dataset, or none are recorded; otherwise recorded ones: those of the
    samples, if they are among them."""
    if not recorded or same_as_any(now, recorded):
        return now
    samples = read_samples(store)
    is_proof = samples is not None and same_as_any(samples.versions, recorded)
    return samples.versions if samples is not None and is_proof else recorded[0]


def discard_other_receipts(store: Store, epoch: int, ledger: TokenizeLedger, repair: Repair) -> None:
    """Delete receipts that an earlier repair left and that do not tell of the dataset's tokens.

    These are receipts of shards that differ from the expected ones, and of ranges that libraries of no trusted versions
    tokenized. Receipts of ranges that name no versions stay.
    """
    paths: list[str] = []
    for key, expected in repair.expected.items():
        shard = ledger.shards.get(key)
        if shard is not None and expected != _sums_of(shard):
            ledger.forget_shard(key)
            paths.append(layout.shard_receipt_path(epoch, *key))
    for range_id in _untrusted_ranges(ledger, repair.trusted):
        ledger.forget_range(range_id)
        paths.append(layout.range_receipt_path(epoch, range_id))
    for _ in map_at_once(store.delete, paths, store.connections):
        pass


def _sums_of(shard: ShardReceipt) -> ShardSums:
    return ShardSums(tuple(file.sha256 for file in shard.files), shard.documents_sha256)


def _untrusted_ranges(ledger: TokenizeLedger, trusted: tuple[str, ...] | None) -> list[int]:
    if trusted is None:
        return []
    named = {receipt.versions for receipt in ledger.ranges.values() if receipt.versions}
    others = {versions for versions in named if not same_as_any(versions, trusted)}
    return [range_id for range_id, receipt in ledger.ranges.items() if receipt.versions in others]


def explain_disagreement(
    uri: str, repair: Repair | None, was: str, now: str, ranges: Iterable[RangeReceipt], error: Disagreement
) -> ChangedError | None:
    """An error that names versions of libraries, where they may be why two writers disagree; else None.

    `was`: the versions that this run compares with; `now`: this process's; those of workers are in `ranges`.
    """
    if repair is not None and not repair.is_known:
        return ChangedError(
            "TokenizerChanged",
            f"{error.message}; {layout.INDEX} does not record which library versions wrote the dataset; this process "
            f"has {now}",
            next_step="install the versions that wrote the dataset and start the same command again, or restore the "
            "changed files from a copy",
        )
    for versions in sorted({now, *(receipt.versions for receipt in ranges)}):
        if find_changes(was, versions):
            finding = f"which may explain this difference: {error.message}"
            return tokenizer_changed(uri, was, versions, finding)
    return None


def _unknown_versions(now: str) -> str:
    return (
        f"{layout.INDEX} does not record which library versions wrote the dataset, so tokjob cannot compare them with "
        f"the installed ones: {now}; a shard that is written again is published only if it matches "
        f"{layout.SHARDS_TABLE}"
    )
