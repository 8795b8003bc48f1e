"""The dataset's digest: one SHA-256 over its content, computed from the existing bytes.

Equal for equal datasets, whatever run wrote them; it is what "same bytes" means. Defined as SHA-256 over

1. the index as canonical JSON (keys sorted, one LF after it) without `digest`, `dataKey`, `run` and the
   tokenizer's `name`, its sums, and the sizes and digests of folders' indexes, recomputed;
2. the rows of the shards table, each as JSON with one LF, in the order of groups in paths, splits and shards; sizes and
   checksums of shards, sidecars and parts recomputed, so that their contents are part of it;
3. the rows of the quarantine table in the same form.

Compressed tables count by their rows: libraries compress differently. The writer computes the same for
`digest` in the index, with code of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

import orjson

from tokenization_worker.output.index import Index
from tokenization_worker.verification.assignment import GroupShard, group_entries, truncated_entry
from tokenization_worker.verification.claims import FileClaim
from tokenization_worker.verification.facts import Facts, Rows
from tokenization_worker.verification.refused import RefusedSums
from tokenization_worker.verification.shards.check import ShardCheck

Lines = Callable[[], Iterable[bytes]]


def compute_digest(
    facts: Facts,
    index: Index,
    files: list[FileClaim],
    checks: list[ShardCheck],
    folders: list[dict[str, Any]],
    refused: RefusedSums,
    lines: Lines,
) -> str | None:
    """The digest of the files found; None where a shard or a sidecar is missing or cannot be read.

    `checks`: all shards, in the order of splits and shards. `folders`: the entries of folders' indexes. `refused`: what
    the rows of the quarantine table add up to; `lines` gives them, each as JSON with one LF.
    """
    rows = [_row(check, facts.row_length) for check in checks]
    shard_rows = [row for row in rows if row is not None]
    if len(shard_rows) < len(rows):
        return None
    written = sum(sum(file.documents) for file in files)
    left_out = sum(file.left_out for file in files)
    dropped = Counter(file.outcome for file in files if not file.is_read)
    apart = ("digest", "dataKey", "run", "folderIndexes")
    content = {key: value for key, value in index.items() if key not in apart} | {
        "tokenizer": {key: value for key, value in index["tokenizer"].items() if key != "name"},
        "splits": split_entries(facts, shard_rows),
        "conservation": {
            "read": written + refused.rows + left_out,
            "written": written,
            "quarantined": refused.reasons,
            "files": {"Read": len(files) - dropped.total(), **dropped},
            **({"leftOut": left_out} if facts.hash_ends else {}),
        },
        "tokens": sum(row["tokens"] for row in shard_rows),
        **truncated_entry(files, facts.longest_document),
        **({"groups": _group_entries(facts, files, shard_rows)} if facts.hash_ends else {}),
        **({"folderIndexes": folders} if folders else {}),
    }
    digest = sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE))
    for row in shard_rows:
        digest.update(orjson.dumps(row) + b"\n")
    for line in lines():
        digest.update(line)
    return digest.hexdigest()


def _group_entries(facts: Facts, files: list[FileClaim], rows: Rows) -> list[dict[str, Any]]:
    shards = [GroupShard(row["group"], row["split"], row["documents"], row["tokens"]) for row in rows if "group" in row]
    return group_entries(files, [split.name for split in facts.splits], shards if facts.path_groups else None)


def split_entries(facts: Facts, shard_rows: Rows) -> list[dict[str, Any]]:
    """The index's entry of every split: the sums over its rows of the shards table, and their SHA-256."""
    entries = []
    for split in facts.splits:
        mine = [row for row in shard_rows if row["split"] == split.name]
        entry: dict[str, Any] = {
            "name": split.name,
            "documents": sum(row["documents"] for row in mine),
            "tokens": sum(row["tokens"] for row in mine),
            "shards": len(mine),
            "digest": sha256(b"".join(orjson.dumps(row) + b"\n" for row in mine)).hexdigest(),
        }
        if facts.row_length:
            rows = sum(row["rows"] for row in mine)
            padding = rows * facts.row_length - entry["tokens"]
            entry["sequences"] = {"length": facts.row_length, "rows": rows, "padding": padding}
        entries.append(entry)
    return entries


def _row(check: ShardCheck, row_length: int) -> dict[str, Any] | None:
    """The shard's row in the shards table, as its bytes have it."""
    if check.tokens is None or check.ends is None:
        return None
    main = check.files[0]
    row: dict[str, Any] = {
        "split": check.claim.split,
        "index": check.claim.index,
        **({"group": check.claim.group} if check.claim.group else {}),
        "path": main.path,
        "tokens": check.tokens,
        "documents": check.ends.documents,
        "bytes": main.bytes,
        "crc32c": main.crc32c,
        "sha256": main.sha256,
    }
    if row_length:
        row["rows"] = (check.stored or 0) // row_length
    else:
        row["documentsSha256"] = check.documents_sha256
    if len(check.files) > 1:
        row["files"] = [
            {
                "format": file.format,
                "path": file.path,
                "bytes": file.bytes,
                "crc32c": file.crc32c,
                "sha256": file.sha256,
            }
            for file in check.files
        ]
    return row
