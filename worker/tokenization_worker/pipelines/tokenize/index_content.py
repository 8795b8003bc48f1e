"""Builds the content of the tables and the index from the plan, the receipts and their sums. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from hashlib import sha256
from typing import Any

import numpy as np
import orjson

from tokenization_worker.api.data import Delimiters, SequenceSpec, TokenizerSpec, truncates
from tokenization_worker.api.keys import KEY_VERSION
from tokenization_worker.output.folder_indexes import FolderFile
from tokenization_worker.output.index import (
    UNKNOWN_VERSIONS,
    IndexContent,
    IndexDelimiters,
    IndexGroup,
    IndexGroupSplit,
    IndexRun,
    IndexSplit,
    format_version,
)
from tokenization_worker.output.ledger.receipts import ShardReceipt
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.pipelines.tokenize.accounting import FileTotals, Totals
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.ledger import TokenizeLedger
from tokenization_worker.readers.document_batch import FileOutcome, Reason
from tokenization_worker.tokenizers.base import Tokenizer


def shard_row(shard: ShardReceipt) -> dict[str, Any]:
    """A row of the shards table: `files` only where there are several, `rows` in place of a sidecar's sum."""
    row: dict[str, Any] = {
        "split": shard.split,
        "index": shard.index,
        **({"group": shard.group} if shard.group else {}),
        "path": shard.path,
        "tokens": shard.tokens,
        "documents": shard.documents,
        "bytes": shard.bytes,
        "crc32c": f"{shard.crc32c:08x}",
        "sha256": shard.sha256,
    }
    if shard.rows:
        row["rows"] = shard.rows
    else:
        row["documentsSha256"] = shard.documents_sha256
    if len(shard.files) > 1:
        row["files"] = [
            {
                "format": file.format,
                "path": file.path,
                "bytes": file.bytes,
                "crc32c": f"{file.crc32c:08x}",
                "sha256": file.sha256,
            }
            for file in shard.files
        ]
    return row


def file_row(plan: Plan, number: int, totals: FileTotals) -> dict[str, Any]:
    """A source file in the table of files; of a dropped one the counts are null."""
    source = plan.files[number]
    can_truncate = truncates(plan.data["output"])
    row: dict[str, Any] = {"uri": source.uri, "size": source.size, "version": source.version}
    if source.pin:
        row["pin"] = source.pin
    if source.group:
        row["group"] = source.group
    if number in totals.dropped:
        outcome, detail = totals.dropped[number]
        names = ("read", "documents", "tokens", "quarantined", "readBytes", "quarantinedBytes")
        more = (*(["leftOut"] if source.group else []), *(["truncatedTokens"] if can_truncate else []))
        nothing = dict.fromkeys((*names, *more))
        return row | {"outcome": outcome, "detail": detail} | nothing
    quarantined = totals.quarantined[number].total() if number in totals.quarantined else 0
    documents = totals.documents[number].tolist()
    left_out = int(totals.left_out[number])
    return row | {
        "outcome": FileOutcome.READ,
        "detail": "",
        "read": sum(documents) + quarantined + left_out,
        "documents": documents,
        "tokens": totals.tokens[number].tolist(),
        "quarantined": quarantined,
        "readBytes": _known(totals.read_bytes[number]),
        "quarantinedBytes": _known(totals.quarantined_bytes[number]),
        **({"leftOut": left_out} if source.group else {}),
        **({"truncatedTokens": totals.truncated[number].tolist()} if can_truncate else {}),
    }


def _known(size: np.int64) -> int | None:
    return None if size < 0 else int(size)


def json_line(row: dict[str, Any]) -> bytes:
    """A row as the tables have it, in the order of its fields."""
    return orjson.dumps(row) + b"\n"


def describe_dataset(
    plan: Plan,
    context: RunContext,
    tokenizer: Tokenizer,
    totals: Totals,
    groups: Mapping[str, tuple[int, Totals]],
    shards: list[ShardReceipt],
    folders: list[FolderFile],
) -> IndexContent:
    """What the index says of the data: the same for every run that makes this dataset. `groups`: of each one its number
    of files, and its sums."""
    content: IndexContent = {
        "formatVersion": format_version(plan.data),
        "keyVersion": KEY_VERSION,
        "data": plan.data,
        "tokenizer": {
            "name": tokenizer.name,
            "fingerprint": tokenizer.fingerprint,
            "vocabularySize": tokenizer.vocab_size,
            **_delimiter_ids(tokenizer.delimiters),
        },
        "dtype": context.dtype.value,
        "splits": [
            _split_entry(split.name, shards, context.data.output.sequence) for split in context.data.output.splits
        ],
        "conservation": {
            "read": totals.read,
            "written": totals.written,
            "quarantined": dict(sorted(totals.quarantined.items())),
            "files": {
                FileOutcome.READ.value: len(plan.files) - totals.dropped.total(),
                **_sorted_counts(totals.dropped),
            },
        },
        "tokens": totals.tokens,
    }
    if truncates(plan.data["output"]):
        content["truncatedTokens"] = totals.truncated
    if groups:
        content["conservation"]["leftOut"] = totals.left_out
        content["groups"] = [_group_entry(name, files, sums) for name, (files, sums) in groups.items()]
        if context.data.path_groups:
            for entry in content["groups"]:
                mine = [shard for shard in shards if shard.group == entry["name"]]
                entry["splits"] = [_group_split(split.name, mine) for split in context.data.output.splits]
    if folders:
        content["folderIndexes"] = [file.entry for file in folders]
    return content


def _group_split(name: str, shards: list[ShardReceipt]) -> IndexGroupSplit:
    mine = [shard for shard in shards if shard.split == name]
    return {
        "name": name,
        "documents": sum(shard.documents for shard in mine),
        "tokens": sum(shard.tokens for shard in mine),
        "shards": len(mine),
    }


def _group_entry(name: str, files: int, totals: Totals) -> IndexGroup:
    return {
        "name": name,
        "files": files,
        "filesDropped": totals.dropped.total(),
        "documents": totals.written,
        "bytes": totals.read_bytes or 0,
        "tokens": totals.tokens,
        "quarantined": totals.quarantined.total(),
        "leftOut": totals.left_out,
    }


def _delimiter_ids(delimiters: Delimiters) -> IndexDelimiters:
    """`beginId` and `endId` only where there are both: older datasets do not have them."""
    if delimiters.begin is None or delimiters.end is None:
        return {"delimiterId": delimiters.only}
    return {"delimiterId": None, "beginId": delimiters.begin, "endId": delimiters.end}


def describe_run(
    plan: Plan,
    context: RunContext,
    ledger: TokenizeLedger,
    tokenizer: Tokenizer,
    totals: Totals,
    voided: list[dict[str, Any]],
    files_digest: str,
) -> IndexRun:
    """What the index says of the run: it may differ from run to run. Bytes of documents are null where not known.

    `voided`: the entries of epochs whose engine was voided.
    """
    receipts = ledger.ranges.values()
    return {
        "runKey": plan.run_key,
        "planId": plan.plan_id,
        "epoch": context.epoch,
        "engine": context.engine,
        "documentsCompared": sum(receipt.samples for receipt in receipts),
        "textBytes": sum(receipt.text_bytes for receipt in receipts),
        "readBytes": totals.read_bytes,
        "quarantinedBytes": totals.quarantined_bytes,
        "libraries": tokenizer.libraries,
        "rangesByVersions": _sorted_counts(Counter(receipt.versions or UNKNOWN_VERSIONS for receipt in receipts)),
        "tokenizer": _tokenizer_source(context.data.tokenizer),
        "asked": plan.asked,
        "epochs": voided,
        "poison": list(_verdict_entries(plan, ledger)),
        "filesDigest": files_digest,
    }


def _verdict_entries(plan: Plan, ledger: TokenizeLedger) -> Iterator[dict[str, Any]]:
    """The documents that were left out because they kill their worker, in source order; not those of dropped files."""
    receipts = [ledger.ranges[range_id] for range_id in range(plan.n_ranges)]
    dropped = {result.file for receipt in receipts for result in receipt.slices if not result.is_read}
    for receipt in receipts:
        for result in receipt.slices:
            if result.file not in dropped:
                for item in result.crash_verdicts:
                    yield {"uri": plan.files[result.file].uri, "reason": Reason.KILLS_WORKER.value} | asdict(item)


def _tokenizer_source(spec: TokenizerSpec) -> dict[str, Any]:
    """Where the tokenizer came from, so that a reader of the dataset can load it again."""
    return {
        "name": spec.name,
        "uri": spec.uri,
        "pattern": spec.pattern,
        "specialTokens": dict(spec.special_tokens),
        **_delimiter_texts(spec),
        **({"revision": spec.revision} if spec.revision else {}),
    }


def _delimiter_texts(spec: TokenizerSpec) -> dict[str, str | None]:
    if spec.end_token is None:
        return {"delimiterToken": spec.delimiter_token}
    return {"beginToken": spec.delimiter_token, "endToken": spec.end_token}


def _sorted_counts(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))


def _split_entry(name: str, shards: list[ShardReceipt], sequence: SequenceSpec | None) -> IndexSplit:
    mine = [shard for shard in shards if shard.split == name]
    tokens = sum(shard.tokens for shard in mine)
    entry: IndexSplit = {
        "name": name,
        "documents": sum(shard.documents for shard in mine),
        "tokens": tokens,
        "shards": len(mine),
        "digest": sha256(b"".join(json_line(shard_row(shard)) for shard in mine)).hexdigest(),
    }
    if sequence is not None:
        rows = sum(shard.rows for shard in mine)
        entry["sequences"] = {
            "length": sequence.length,
            "rows": rows,
            "padding": rows * sequence.length - tokens,
        }
    return entry
