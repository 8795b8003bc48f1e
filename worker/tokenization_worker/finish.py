"""The end of a run: check the sums, write the tables, seal the epoch, write the index.

Nothing is committed before the index, and the index is written last, create-only. Every table is a pure
function of the receipts, so it does not matter how often this is started and interrupted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from hashlib import sha256
from typing import Any

import orjson

from tokenization_worker import layout
from tokenization_worker.api.data import DelimiterPosition, TokenizerSpec
from tokenization_worker.api.keys import KEY_VERSION
from tokenization_worker.api.resolve import RunLimits
from tokenization_worker.commit import Disagreement, create_or_read, place_bytes
from tokenization_worker.context import RunContext
from tokenization_worker.epochs import current_epoch, require_current, seal_epoch
from tokenization_worker.errors import TemporaryError
from tokenization_worker.formats import npy
from tokenization_worker.index import FORMAT_VERSION, Index, read_index
from tokenization_worker.ledger import Ledger
from tokenization_worker.plan import Plan
from tokenization_worker.proof import Digest, begin_digest, find_changed_shards
from tokenization_worker.quarantine import read_range_lists
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.readers.documents import FileOutcome, Reason
from tokenization_worker.receipts import ShardReceipt
from tokenization_worker.records import dump_json
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.storage.listing import delete_all
from tokenization_worker.tokenizers.base import Tokenizer
from tokenization_worker.totals import (
    FileTotals,
    Totals,
    add_up,
    add_up_files,
    check_conservation,
    check_limits,
)


def commit(
    store: Store, plan: Plan, context: RunContext, ledger: Ledger, tokenizer: Tokenizer, limits: RunLimits
) -> Index:
    """Check everything and write the index; returns the one that is there. Needs a complete ledger."""
    files = add_up_files(plan, ledger, context.streams.count)
    totals = add_up(files)
    unusable = _quarantine_rows(store, plan, context, ledger, files)
    check_limits(store, totals, limits.max_quarantined, context.epoch, unusable)
    shards = _ordered_shards(context, ledger)
    context.streams.require_all_filled(_shards_per_stream(context, shards))
    check_conservation(totals, shards, delimited=context.delimiter_position is not DelimiterPosition.NONE)
    _check_shards(store, shards)
    if context.epoch:
        _remove_voided_shards(store, context, shards)
    content = _describe(plan, context, tokenizer, totals, shards)
    digest = begin_digest(content)
    files_digest = sha256()
    tables = {
        layout.SHARDS_TABLE: _pack(map(_shard_row, shards), digest),
        layout.QUARANTINE_TABLE: _pack(unusable, digest),
        layout.FILES_TABLE: _pack((_file_row(plan, number, files) for number in range(len(plan.files))), files_digest),
    }
    for path, packed in tables.items():
        place_bytes(store, path, packed, allow_replace=lambda: require_current(store, context.epoch))
    index = content | {
        "digest": digest.hexdigest(),
        "dataKey": plan.data_key,
        "run": _describe_run(store, plan, context, ledger, tokenizer) | {"filesDigest": files_digest.hexdigest()},
    }
    seal_epoch(store, context.epoch)
    if create_or_read(store, layout.INDEX, dump_json(index)) is not None:
        found = read_index(store)
        if found is None or found["dataKey"] != plan.data_key or found["digest"] != index["digest"]:
            raise Disagreement(
                "NotDeterministic",
                f"{store.uri}/{layout.INDEX} was committed meanwhile with other content",
                next_step="please report this with both manifests",
            )
        return found
    return index


def _ordered_shards(context: RunContext, ledger: Ledger) -> list[ShardReceipt]:
    order = {split.name: i for i, split in enumerate(context.data.output.splits)}
    return sorted(ledger.shards.values(), key=lambda shard: (order[shard.split], shard.index))


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
            f"{store.uri}/{changed[0].path} or its documents sidecar is gone or no longer what its receipt "
            f"says ({len(changed)} such shards)",
            next_step="start the same command again: they are written again",
        )


def _remove_voided_shards(store: Store, context: RunContext, shards: list[ShardReceipt]) -> None:
    """Delete what a voided engine left at names that the dataset does not have: it may have made more shards."""
    template = context.data.output.path
    ours = {shard.path for shard in shards} | {layout.documents_path(shard.split, shard.index) for shard in shards}
    matcher = layout.shard_matcher(template, npy.SUFFIX, [split.name for split in context.data.output.splits])
    for prefix, is_shard in ((layout.static_prefix(template), True), (layout.DOCUMENTS, False)):
        entries = (entry for entry in store.list(prefix) if entry.path not in ours)
        delete_all(store, [entry for entry in entries if not is_shard or matcher.fullmatch(entry.path)])


def _shard_row(shard: ShardReceipt) -> dict[str, Any]:
    return {
        "split": shard.split,
        "index": shard.index,
        "path": shard.path,
        "tokens": shard.tokens,
        "documents": shard.documents,
        "bytes": shard.bytes,
        "crc32c": f"{shard.crc32c:08x}",
        "sha256": shard.sha256,
        "documentsSha256": shard.documents_sha256,
    }


def _file_row(plan: Plan, number: int, totals: FileTotals) -> dict[str, Any]:
    source = plan.files[number]
    row: dict[str, Any] = {"uri": source.uri, "size": source.size, "version": source.version}
    if source.pin:
        row["pin"] = source.pin
    if number in totals.dropped:
        outcome, detail = totals.dropped[number]
        nothing = {"read": None, "documents": None, "tokens": None, "quarantined": None}
        return row | {"outcome": outcome, "detail": detail} | nothing
    quarantined = totals.quarantined[number].total() if number in totals.quarantined else 0
    documents = totals.documents[number].tolist()
    return row | {
        "outcome": FileOutcome.READ,
        "detail": "",
        "read": sum(documents) + quarantined,
        "documents": documents,
        "tokens": totals.tokens[number].tolist(),
        "quarantined": quarantined,
    }


def _quarantine_rows(
    store: Store, plan: Plan, context: RunContext, ledger: Ledger, files: FileTotals
) -> Iterator[dict[str, Any]]:
    """All unusable documents of files that were read, in source order, with line numbers."""
    digests = ((range_id, ledger.ranges[range_id].quarantine_digest) for range_id in range(plan.n_ranges))
    lists = ((range_id, digest) for range_id, digest in digests if digest)
    for range_id, row in read_range_lists(store, context.epoch, lists):
        if row["file"] not in files.dropped:
            first_slice = int(plan.cut.range_slice[range_id])
            row["record"] += int(files.records_before[first_slice + row.pop("slice")]) + 1
            yield row


def _json_line(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row) + b"\n"


def _pack(rows: Iterable[dict[str, Any]], *digests: Digest) -> bytes:
    """JSON lines under zstd, a row at a time; `digests` see the lines."""
    compressor = zstd.ZstdCompressor()
    parts = []
    for row in rows:
        line = _json_line(row)
        for digest in digests:
            digest.update(line)
        if part := compressor.compress(line):
            parts.append(part)
    return b"".join([*parts, compressor.flush()])


def _describe(
    plan: Plan, context: RunContext, tokenizer: Tokenizer, totals: Totals, shards: list[ShardReceipt]
) -> Index:
    """What the index says of the data: the same for every run that makes this dataset."""
    return {
        "formatVersion": FORMAT_VERSION,
        "keyVersion": KEY_VERSION,
        "data": plan.data,
        "tokenizer": {
            "name": tokenizer.name,
            "fingerprint": tokenizer.fingerprint,
            "vocabularySize": tokenizer.vocab_size,
            "delimiterId": tokenizer.delimiter_id,
        },
        "dtype": context.dtype.value,
        "splits": [_split_entry(split.name, shards) for split in context.data.output.splits],
        "conservation": {
            "read": totals.read,
            "written": totals.written,
            "quarantined": dict(sorted(totals.quarantined.items())),
            "files": {
                FileOutcome.READ.value: len(plan.files) - totals.dropped.total(),
                **sorted_counts(totals.dropped),
            },
        },
        "tokens": totals.tokens,
    }


def _describe_run(
    store: Store, plan: Plan, context: RunContext, ledger: Ledger, tokenizer: Tokenizer
) -> dict[str, Any]:
    """What the index says of the run: it may differ from run to run."""
    receipts = ledger.ranges.values()
    return {
        "runKey": plan.run_key,
        "planId": plan.plan_id,
        "epoch": context.epoch,
        "engine": context.engine,
        "documentsCompared": sum(receipt.samples for receipt in receipts),
        "textBytes": sum(receipt.text_bytes for receipt in receipts),
        "libraries": tokenizer.libraries,
        "tokenizer": _tokenizer_source(context.data.tokenizer),
        "epochs": _voided_epochs(store),
        "poison": list(_poison_entries(plan, ledger)),
    }


def _poison_entries(plan: Plan, ledger: Ledger) -> Iterator[dict[str, Any]]:
    """The documents that were left out because they kill their worker, in source order; not those of dropped files."""
    receipts = [ledger.ranges[range_id] for range_id in range(plan.n_ranges)]
    dropped = {result.file for receipt in receipts for result in receipt.slices if not result.is_read}
    for receipt in receipts:
        for result in receipt.slices:
            if result.file not in dropped:
                for item in result.poison:
                    yield {"uri": plan.files[result.file].uri, "reason": Reason.KILLS_WORKER.value} | asdict(item)


def _voided_epochs(store: Store) -> list[dict[str, Any]]:
    try:
        return [entry for entry in current_epoch(store).history if "voids" in entry]
    except NotFound as error:
        raise TemporaryError(
            "StorageFailed",
            f"{store.uri}/{layout.epoch_path(0)} was removed while the run went on",
            next_step="start the same command again",
        ) from error


def _tokenizer_source(spec: TokenizerSpec) -> dict[str, Any]:
    """Where the tokenizer came from, so that a reader of the dataset can load it again."""
    return {
        "name": spec.name,
        "uri": spec.uri,
        "pattern": spec.pattern,
        "specialTokens": dict(spec.special_tokens),
        "delimiterToken": spec.delimiter_token,
    }


def sorted_counts(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))


def _split_entry(name: str, shards: list[ShardReceipt]) -> dict[str, Any]:
    mine = [shard for shard in shards if shard.split == name]
    return {
        "name": name,
        "documents": sum(shard.documents for shard in mine),
        "tokens": sum(shard.tokens for shard in mine),
        "shards": len(mine),
        "digest": sha256(b"".join(_json_line(_shard_row(shard)) for shard in mine)).hexdigest(),
    }
