"""Checks the indexes of folders: each lists the shards of its folder, as the shards table has them."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from tokenization_worker.output import layout
from tokenization_worker.output.index import Index
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.verification.differences import first_difference
from tokenization_worker.verification.facts import Facts
from tokenization_worker.verification.formats.base import ListedShard
from tokenization_worker.verification.formats.registry import decoder_of
from tokenization_worker.verification.report import Fault, Finding

Entries = list[dict[str, Any]]


def check_folders(store: Store, facts: Facts, index: Index) -> tuple[list[Finding], Entries | None]:
    """The findings, and what the dataset's index must say of the files that are there; None where one is missing."""
    findings: list[Finding] = []
    entries: Entries | None = []
    for (format, path), shards in _shards_of_folders(facts).items():
        lister = decoder_of(format).folder_index
        assert lister is not None, "such formats are looked for"
        expected = lister.content(shards, facts.dtype, facts.row_length)
        try:
            found = store.read(path)
        except NotFound:
            findings.append(Finding(Fault.FOLDER_INDEX_WRONG, f"a list of {len(shards):,} shards", "nothing", path))
            entries = None
            continue
        if found != expected:
            words = [f"{len(data):,} bytes, SHA-256 {sha256(data).hexdigest()}" for data in (expected, found)]
            findings.append(Finding(Fault.FOLDER_INDEX_WRONG, f"the list of its shards ({words[0]})", words[1], path))
        if entries is not None:
            digest = sha256(found).hexdigest()
            entries.append({"format": format, "path": path, "bytes": len(found), "sha256": digest})
    listed = index.get("folderIndexes")
    if not findings and (entries or None) != listed:
        first = first_difference("folderIndexes", entries or None, listed)
        expected_words = f"{first.place}: {first.expected}"
        findings.append(Finding(Fault.TABLES_DISAGREE, expected_words, first.found, layout.INDEX))
    return findings, entries


def _shards_of_folders(facts: Facts) -> dict[tuple[str, str], list[ListedShard]]:
    """By format and path of the folder's index, in the order of the shards table: groups, splits, numbers."""
    folders: dict[tuple[str, str], list[ListedShard]] = {}
    for claim in (shard for shards in facts.streams for shard in shards):
        for file in claim.token_files:
            lister = decoder_of(file.format).folder_index
            if lister is not None:
                shard = ListedShard(file.path.rpartition("/")[2], file.bytes, claim.rows)
                folders.setdefault((file.format, layout.beside(file.path, lister.name)), []).append(shard)
    return folders
