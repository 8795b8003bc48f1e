"""Commits a run: checks the sums, writes the tables, seals the epoch, writes the index.

Nothing is committed before the index, and the index is written last, create-only. Every table is a pure
function of the receipts, so it does not matter how often this is started and interrupted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any

from tokenization_worker.api.resolve import RunLimits
from tokenization_worker.errors import ChangedError, TemporaryError
from tokenization_worker.events import Warned, Watcher, ignore
from tokenization_worker.messages.counts import counted
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import Disagreement, create_or_read, place_bytes
from tokenization_worker.output.folder_indexes import FolderFile, make_folder_indexes, write_folder_indexes
from tokenization_worker.output.index import Index, dump_index, load_index, read_index
from tokenization_worker.output.ledger.epochs import current_epoch, epochs_gone, require_current, seal_epoch
from tokenization_worker.output.ledger.quarantine import read_range_lists
from tokenization_worker.output.ledger.receipts import ShardReceipt
from tokenization_worker.output.naming import Naming
from tokenization_worker.output.own_files import sort_own, sort_shards
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.output.shard_check import find_changed_shards
from tokenization_worker.output.tables import Digest, begin_digest
from tokenization_worker.pipelines.tokenize.accounting import (
    FileTotals,
    add_up,
    add_up_files,
    add_up_groups,
    check_conservation,
    check_limits,
)
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.index_content import (
    describe_dataset,
    describe_run,
    file_row,
    json_line,
    shard_row,
)
from tokenization_worker.pipelines.tokenize.ledger import TokenizeLedger
from tokenization_worker.planning.limits import cannot_judge_bytes
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.storage.base import Entry, NotFound, Store
from tokenization_worker.storage.listing import delete_all
from tokenization_worker.storage.source_file import SourceFile, describe_touch, source_changed
from tokenization_worker.storage.sources import find_touched_files
from tokenization_worker.tokenizers.base import Tokenizer

_BYTES_UNKNOWN = (
    "the size of the unusable documents is not known, because an older version of this program wrote receipts of this "
    "run: maxQuarantined applies to the number of documents only"
)


def commit(
    store: Store,
    plan: Plan,
    context: RunContext,
    ledger: TokenizeLedger,
    tokenizer: Tokenizer,
    limits: RunLimits,
    watch: Watcher = ignore,
) -> Index:
    """Check everything and write the index; returns the one that is there. Needs a complete ledger, and a plan with
    its files as this start has listed them."""
    files = add_up_files(plan, ledger, context.streams.count)
    totals = add_up(files)
    unusable = _quarantine_rows(store, plan, context, ledger, files)
    if cannot_judge_bytes(totals.documents, limits.max_quarantined):
        watch(Warned(_BYTES_UNKNOWN))
    check_limits(store, totals, limits.max_quarantined, context.epoch, unusable)
    shards = _ordered_shards(context, ledger)
    _require_filled_splits(context, shards, watch)
    check_conservation(totals, shards, delimited=context.is_delimited)
    _check_shards(store, shards)
    folders = make_folder_indexes(map(shard_row, shards), Naming.of(context.data, context.dtype).largest)
    _require_no_other_shards(store, context, shards, folders)
    content = describe_dataset(plan, context, tokenizer, totals, add_up_groups(plan, files), shards, folders)
    digest = begin_digest(content)
    files_digest = sha256()
    tables = {
        layout.SHARDS_TABLE: _pack(map(shard_row, shards), digest),
        layout.QUARANTINE_TABLE: _pack(unusable, digest),
        layout.FILES_TABLE: _pack((file_row(plan, number, files) for number in range(len(plan.files))), files_digest),
    }
    for path, packed in tables.items():
        place_bytes(store, path, packed, allow_replace=lambda: require_current(store, context.epoch))
    write_folder_indexes(store, folders, lambda path: _allow_replace(store, context, path))
    run = describe_run(plan, context, ledger, tokenizer, totals, _voided_epochs(store), files_digest.hexdigest())
    index: Index = {**content, "digest": digest.hexdigest(), "dataKey": plan.data_key, "run": run}
    _require_sources_unchanged(plan, watch)
    seal_epoch(store, context.epoch)
    data = dump_index(index)
    if create_or_read(store, layout.INDEX, data) is not None:
        found = read_index(store)
        if found is None or found["dataKey"] != plan.data_key or found["digest"] != index["digest"]:
            raise Disagreement(
                "NotDeterministic",
                f"{store.uri}/{layout.INDEX} has other content: another run committed it meanwhile",
                next_step="please report this with both manifests",
            )
        return found
    return load_index(data)


def _allow_replace(store: Store, context: RunContext, path: str) -> None:
    """Return if this run may replace a folder's index: in a later epoch it may be a voided writer's."""
    require_current(store, context.epoch)
    if context.epoch == 0:
        raise ChangedError(
            "OutputConflict",
            f"{store.uri}/{path} exists and differs from the file that this job writes there to list the shards of the "
            "folder",
            next_step="move it away and start the same command again: finished work is kept",
        )


def _ordered_shards(context: RunContext, ledger: TokenizeLedger) -> list[ShardReceipt]:
    groups = {name: i for i, name in enumerate(context.data.path_groups or ("",))}
    splits = {split.name: i for i, split in enumerate(context.data.output.splits)}
    return sorted(ledger.shards.values(), key=lambda shard: (groups[shard.group], splits[shard.split], shard.index))


def _require_filled_splits(context: RunContext, shards: list[ShardReceipt], watch: Watcher) -> None:
    """Raise SplitEmpty for a split without shards; `watch` is told of one that lacks only those of some groups.

    Leading shards leave a group's last split empty where the group is too small: all of it would be test data.
    """
    streams = context.streams
    for group in context.data.path_groups:
        mine = _shards_per_stream(context, [shard for shard in shards if shard.group == group])
        if not any(mine):
            watch(Warned(f"group {group} has no tokens, and so no shards"))
            continue
        if not streams.by_hash:
            streams.require_all_filled(mine, group)
            continue
        for split, count in zip(streams.splits, mine, strict=True):
            if not count:
                watch(Warned(f"split {split.name!r} of group {group} has no shards: no document falls into its share"))
    streams.require_all_filled(_shards_per_stream(context, shards))


def _shards_per_stream(context: RunContext, shards: list[ShardReceipt]) -> list[int]:
    if not context.streams.by_hash:
        return [len(shards)]
    names = Counter(shard.split for shard in shards)
    return [names[split.name] for split in context.data.output.splits]


def _check_shards(store: Store, shards: list[ShardReceipt]) -> None:
    changed = find_changed_shards(store, shards)
    if changed:
        raise TemporaryError(
            "ShardChanged",
            f"{store.uri}/{changed[0].path} or its documents sidecar is missing or no longer matches its receipt "
            f"({counted(len(changed), 'such shard')})",
            next_step="start the same command again, which writes them again",
        )


def _require_sources_unchanged(plan: Plan, watch: Watcher) -> None:
    """Raise `ChangedError` where a local file is not the one that was listed.

    Every receipt is of a file that was untouched until its last byte was read. So what was only touched since, and is
    still the same file of the same size and modification time, says nothing of the dataset; `watch` is told.
    """
    touched: list[tuple[SourceFile, SourceFile]] = []
    for was, now in find_touched_files(plan.files):
        if now is None or was.was_replaced(now):
            raise source_changed(was, now, "before the dataset was complete")
        touched.append((was, now))
    if touched:
        was, now = touched[0]
        watch(
            Warned(
                f"source files that were touched after they were read: {len(touched):,}, the first: {was.uri}: "
                f"{describe_touch(was, now)}. The dataset holds their earlier content; `tokjob verify --mode full` "
                "compares it with their content now"
            )
        )


def _require_no_other_shards(
    store: Store, context: RunContext, shards: list[ShardReceipt], folders: list[FolderFile]
) -> None:
    """Raise `OutputConflict` for a file that has a shard's name and is none of the dataset's: training would read it.

    What a voided engine left is deleted: it may have made more shards.
    """
    naming = Naming.of(context.data, context.dtype)
    known = {file.path for shard in shards for file in shard.files} | {file.path for file in folders}
    others = [entry for entry in naming.list_named(store) if entry.path not in known]
    if context.epoch:
        others = _remove_voided(store, naming, shards, others)
    if others:
        raise ChangedError(
            "OutputConflict",
            f"{store.uri}/{others[0].path} has a name that output.path gives to shards, but this run did not write it "
            f"({counted(len(others), 'such file')})",
            next_step="move it away or remove it, and start the same command again: finished work is kept",
        )


def _remove_voided(store: Store, naming: Naming, shards: list[ShardReceipt], others: list[Entry]) -> list[Entry]:
    """Delete the shards among `others` that earlier epochs wrote, and their sidecars; returns the files that stay."""
    named = [entry for entry in others if naming.is_given(entry.path)]
    receipts = list(store.list(layout.LEDGER)) if named else []
    sidecars = list(store.list(layout.DOCUMENTS))
    ours = sort_shards(store, naming, named, [*receipts, *sidecars]).ours
    known = {layout.documents_path(*shard.key) for shard in shards}
    delete_all(store, [*ours, *sort_own(store, (entry for entry in sidecars if entry.path not in known)).ours])
    gone = {entry.path for entry in ours}
    return [entry for entry in others if entry.path not in gone]


def _quarantine_rows(
    store: Store, plan: Plan, context: RunContext, ledger: TokenizeLedger, files: FileTotals
) -> Iterator[dict[str, Any]]:
    """All unusable documents of files that were read, in source order, with line numbers."""
    digests = ((range_id, ledger.ranges[range_id].quarantine_digest) for range_id in range(plan.n_ranges))
    lists = ((range_id, digest) for range_id, digest in digests if digest)
    for range_id, row in read_range_lists(store, context.epoch, lists):
        if row["file"] not in files.dropped:
            first_slice = int(plan.cut.range_slice[range_id])
            row["record"] += int(files.records_before[first_slice + row.pop("slice")]) + 1
            yield row


def _pack(rows: Iterable[dict[str, Any]], *digests: Digest) -> bytes:
    """JSON lines under zstd with a checksum, a row at a time; `digests` see the lines."""
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.checksum_flag: 1})
    parts = []
    for row in rows:
        line = json_line(row)
        for digest in digests:
            digest.update(line)
        if part := compressor.compress(line):
            parts.append(part)
    return b"".join([*parts, compressor.flush()])


def _voided_epochs(store: Store) -> list[dict[str, Any]]:
    try:
        return [entry for entry in current_epoch(store).history if "voids" in entry]
    except NotFound as error:
        raise epochs_gone(store) from error
