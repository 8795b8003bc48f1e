"""Checks the index and the tables against each other: names, counts, sums, keys. Pure, but reads the plan once.

Invariant proved here and used by the comparison with the source: the places that files claim in a stream
follow each other without gap or overlap and fill exactly the tokens that the shards table claims. Whether
shards hold those tokens, and whether the files give them, is left to `shards` and `files`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import sha256

import google_crc32c
import orjson

from tokenization_worker.api.keys import data_key
from tokenization_worker.output import layout
from tokenization_worker.output.index import Index
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.verification.assignment import GroupShard, group_entries, truncated_entry
from tokenization_worker.verification.claims import FileClaim
from tokenization_worker.verification.differences import first_difference
from tokenization_worker.verification.facts import Facts, Rows, zstd
from tokenization_worker.verification.refused import RefusedSums
from tokenization_worker.verification.report import Fault, Finding

_PLAN_MAGIC = b"TOKPLAN2"


def check_tables(
    facts: Facts, index: Index, files: list[FileClaim], file_rows: Rows, refused: RefusedSums
) -> list[Finding]:
    """Everything that can be known without opening a shard or a source file."""
    return [
        *_check_shard_names(facts),
        *_check_places(facts, files),
        *_check_files(files, file_rows, refused),
        *_check_index(facts, index, files, refused),
        *_check_files_digest(index, file_rows),
    ]


def _differ(path: str, what: str, expected: object, found: object) -> Iterator[Finding]:
    if expected != found:
        first = first_difference(what, expected, found)
        yield Finding(Fault.TABLES_DISAGREE, f"{first.place}: {first.expected}", first.found, path)


def _check_shard_names(facts: Facts) -> Iterator[Finding]:
    """Every stream's shards have the names and sizes that the manifest gives them; the last may be short."""
    path = layout.SHARDS_TABLE
    before = 0
    for number, shards in enumerate(facts.streams):
        group = facts.path_groups[number // facts.streams_of_files] if facts.path_groups else ""
        for count, shard in enumerate(shards):
            split, index = _name(facts, number % facts.streams_of_files, count)
            names = [
                layout.shard_path(template, suffix, split=split, index=index, shard=before + count, group=group)
                for template, suffixes in facts.templates
                for suffix in suffixes
            ]
            found = [file.path for file in shard.files]
            yield from _differ(path, f"shard {count} of stream {number}", ", ".join(names), ", ".join(found))
            place = (shard.split, shard.index, *([shard.group] if group else []))
            yield from _differ(path, f"place of {shard.path}", (split, index, *([group] if group else [])), place)
            is_last = count == len(shards) - 1
            if facts.sequence is not None and facts.sequence.has_uneven_shards:
                continue  # its rows follow from its documents
            if shard.stored != facts.shard_tokens and not (is_last and 0 < shard.stored < facts.shard_tokens):
                what = "tokens and padding" if shard.rows else "tokens"
                yield from _differ(path, f"{what} of {shard.path}", facts.shard_tokens, shard.stored)
        before += len(shards)


def _name(facts: Facts, stream: int, count: int) -> tuple[str, int]:
    """Split, and number within it, of the `count`-th shard of a stream, which is the `stream`-th of its group."""
    if facts.streams_of_files > 1:
        return facts.splits[stream].name, count
    for split in facts.splits[:-1]:
        if count < (split.shards or 0):
            return split.name, count
        count -= split.shards or 0
    return facts.splits[-1].name, count


def _check_places(facts: Facts, files: list[FileClaim]) -> Iterator[Finding]:
    """The files' tokens fill their streams exactly; their places follow from the sums before them."""
    for stream, shards in enumerate(facts.streams):
        number = stream % facts.streams_of_files
        mine = [file for file in files if file.first_stream == stream - number]
        in_shards = sum(shard.tokens for shard in shards)
        in_files = sum(file.tokens[number] for file in mine)
        yield from _differ(layout.FILES_TABLE, f"tokens of all files in stream {stream}", in_shards, in_files)
        if facts.sequence is not None and facts.sequence.packing is None:
            end = max((file.starts[number] + file.tokens[number] for file in mine), default=0)
            rows = -(-end // facts.sequence.length)
            in_table = sum(shard.rows for shard in shards)
            yield from _differ(layout.SHARDS_TABLE, f"rows of all files in stream {stream}", rows, in_table)
        begun = sum(shard.documents for shard in shards)
        written = sum(file.documents[number] for file in mine)
        if facts.delimiter_ids or begun > written:  # without delimiters, empty documents have no tokens
            yield from _differ(layout.FILES_TABLE, f"documents of all files in stream {stream}", begun, written)


def _check_files(files: list[FileClaim], rows: Rows, refused: RefusedSums) -> Iterator[Finding]:
    """read = written + quarantined + left out for every file, and the quarantine table has as many of it."""
    listed = refused.by_uri.copy()
    for file, row in zip(files, rows, strict=True):
        read = sum(file.documents) + file.quarantined + file.left_out if file.is_read else None
        yield from _differ(layout.FILES_TABLE, f"documents read of {file.uri}", read, row.get("read"))
        what = f"unusable documents of {file.uri}"
        yield from _differ(layout.QUARANTINE_TABLE, what, file.quarantined, listed.pop(file.uri, 0))
    for uri, count in listed.items():
        yield from _differ(layout.QUARANTINE_TABLE, f"unusable documents of {uri}, which is no source file", 0, count)


def _check_index(facts: Facts, index: Index, files: list[FileClaim], refused: RefusedSums) -> Iterator[Finding]:
    path = layout.INDEX
    written = sum(sum(file.documents) for file in files)
    tokens = sum(shard.tokens for shards in facts.streams for shard in shards)
    yield from _differ(path, "tokens", tokens, index.get("tokens"))
    truncated = truncated_entry(files, facts.longest_document).get("truncatedTokens")
    yield from _differ(path, "truncatedTokens", truncated, index.get("truncatedTokens"))
    left_out = sum(file.left_out for file in files)
    conservation = {
        "read": written + refused.rows + left_out,
        "written": written,
        "quarantined": dict(sorted(refused.reasons.items())),
        "files": {"Read": sum(file.is_read for file in files), **_dropped(files)},
        **({"leftOut": left_out} if facts.hash_ends else {}),
    }
    yield from _differ(path, "conservation", conservation, index.get("conservation"))
    names = [split.name for split in facts.splits]
    yield from _differ(path, "groups", group_entries(files, names, _group_shards(facts)), index.get("groups", []))
    run: Mapping[str, object] = index["run"]
    for name, sizes in (
        ("readBytes", [file.read_bytes for file in files]),
        ("quarantinedBytes", [file.quarantined_bytes for file in files]),
    ):
        if run.get(name) is not None:  # an older version may have made the dataset, or begun it
            total = sum(size for size in sizes if size is not None) if None not in sizes else None
            yield from _differ(path, f"run.{name}", total, run[name])
    key = data_key(index["data"], ((file.uri, file.size, file.version, file.group) for file in files))
    yield from _differ(path, "dataKey of its fields and files", key, index.get("dataKey"))
    yield from _differ(path, "dtype", index["data"]["output"]["dtype"], index["dtype"])
    ids = facts.delimiter_ids
    only, begin, end = (None, *ids) if len(ids) == 2 else (ids[0] if ids else None, None, None)
    for name, delimiter in (("delimiterId", only), ("beginId", begin), ("endId", end)):
        yield from _differ(path, f"tokenizer.{name}", delimiter, index["tokenizer"].get(name))
    yield from _differ(path, "tokenizer", index["data"]["tokenizer"]["fingerprint"], facts.fingerprint)


def _group_shards(facts: Facts) -> list[GroupShard] | None:
    if not facts.path_groups:
        return None
    claims = [shard for shards in facts.streams for shard in shards]
    return [GroupShard(claim.group, claim.split, claim.documents, claim.tokens) for claim in claims]


def _check_files_digest(index: Index, rows: Rows) -> Iterator[Finding]:
    """The files table is the one that the index was written with; the dataset's digest does not count it."""
    digest = sha256()
    for row in rows:
        digest.update(orjson.dumps(row) + b"\n")
    listed = index["run"].get("filesDigest")  # absent in datasets that were written before it was there
    if listed not in (None, digest.hexdigest()):
        expected = f"rows of SHA-256 {listed}, as {layout.INDEX} says"
        yield Finding(Fault.DIGEST_DIFFERS, expected, f"rows of SHA-256 {digest.hexdigest()}", layout.FILES_TABLE)


def _dropped(files: list[FileClaim]) -> dict[str, int]:
    return dict(sorted(Counter(file.outcome for file in files if not file.is_read).items()))


def check_crash_verdicts(facts: Facts, refused: RefusedSums) -> Iterator[Finding]:
    """The index tells of the same documents that kill workers as the quarantine table."""
    for uri in sorted({*facts.crash_verdicts, *refused.killing}):
        what = f"positions of documents of {uri} that kill workers"
        listed, told = list(refused.killing.get(uri, ())), sorted(facts.crash_verdicts.get(uri, ()))
        yield from _differ(layout.INDEX, what, listed, told)


def check_plan(store: Store, index: Index, files: list[FileClaim]) -> list[Finding]:
    """The dataset has the data fields and the files that were planned, all of them, in that order.

    The plan is no part of the dataset: one that has been removed, or that has another format, is no finding.
    """
    try:
        data = store.read(layout.PLAN)
    except NotFound:
        return []
    if data[:8] != _PLAN_MAGIC and re.fullmatch(rb"TOKPLAN[0-9]", data[:8]):
        return []
    if google_crc32c.value(data[:-4]) != int.from_bytes(data[-4:], "little"):
        return [Finding(Fault.TABLE_CORRUPT, "a plan", "another CRC32C than its last 4 bytes", layout.PLAN)]
    header_end = 16 + int.from_bytes(data[8:16], "little")
    try:
        header = orjson.loads(data[16:header_end])
        fields, size = header["data"], header["sections"]["files"]  # the first section
        planned = [
            _planned_file(*orjson.loads(line)) for line in zstd.decompress(data[header_end:][:size]).splitlines()
        ]
    except (ValueError, KeyError, TypeError, zstd.ZstdError) as error:
        return [Finding(Fault.TABLE_CORRUPT, "a plan", str(error), layout.PLAN)]
    if fields != index["data"]:
        return list(_differ(layout.INDEX, "data fields as planned", fields, index["data"]))
    listed = [(file.uri, file.size, file.version, file.group) for file in files]
    for number, (was, now) in enumerate(zip(planned, listed, strict=False)):
        if was != now:
            return list(_differ(layout.FILES_TABLE, f"file {number + 1} as planned", was, now))
    return list(_differ(layout.FILES_TABLE, "number of files as planned", len(planned), len(listed)))


def _planned_file(
    uri: str, size: int, version: str, kind: object, pin: str = "", group: str = ""
) -> tuple[str, int, str, str]:
    return uri, size, version, group


def check_names(store: Store, facts: Facts) -> list[Finding]:
    """No file but those of the shards has a name that `output.path` gives to shards: a training job would read it."""
    known = {file.path for shards in facts.streams for shard in shards for file in shard.files}
    found: dict[str, None] = {}
    for template, suffixes in facts.templates:
        matcher = layout.shard_matcher(template, suffixes)
        named = (entry.path for entry in store.list(layout.static_prefix(template)) if matcher.fullmatch(entry.path))
        found.update((path, None) for path in named if path not in known)
    expected = "no file of a shard's name but the dataset's"
    return [Finding(Fault.UNEXPECTED_FILE, expected, "one more", path) for path in found]
