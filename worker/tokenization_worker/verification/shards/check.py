"""Checks one shard's bytes against the dataset's claims: size, header, checksums, ids, sidecar.

Needs no source. Reads every byte of the shard once, in chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby, pairwise

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.storage.open import open_store
from tokenization_worker.verification.advance import OnAdvance, ignore_advance
from tokenization_worker.verification.claims import ClaimedFile, ShardClaim
from tokenization_worker.verification.facts import Facts
from tokenization_worker.verification.formats.registry import decoder_of
from tokenization_worker.verification.report import Fault, Finding
from tokenization_worker.verification.shards.same_tokens import TokenSums, find_difference
from tokenization_worker.verification.shards.sidecar import (
    BadSidecar,
    Sidecar,
    SidecarEnds,
    check_sidecar,
    parse_sidecar,
    sidecar_ends,
)

_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ShardCheck:
    """What the shard is, by its bytes: `files` are those that are there.

    `tokens` None: a file is missing, or has no header; `ends` None: no usable sidecar.
    """

    claim: ShardClaim
    findings: tuple[Finding, ...]
    files: tuple[ClaimedFile, ...]
    tokens: int | None
    documents_sha256: str
    ends: SidecarEnds | None

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)


def check_shard(facts: Facts, claim: ShardClaim, on_advance: OnAdvance = ignore_advance) -> ShardCheck:
    """Read the shard's files and its sidecar; every difference is a finding. `on_advance` gets the files' bytes."""
    store = open_store(facts.uri)
    sidecar: Sidecar | None = None
    sidecar_sha256 = ""
    findings: list[Finding] = []
    try:
        data = store.read(claim.sidecar_path)
        sidecar_sha256 = sha256(data).hexdigest()
        sidecar = parse_sidecar(data)
    except NotFound:
        findings.append(Finding(Fault.SIDECAR_MISSING, "a documents sidecar", "nothing", claim.sidecar_path))
    except BadSidecar as error:
        findings.append(Finding(Fault.SIDECAR_CORRUPT, "a documents sidecar", str(error), claim.sidecar_path))
    if sidecar is not None:
        findings.extend(check_sidecar(claim, sidecar, sidecar_sha256))
    files: list[ClaimedFile] = []
    readings = [
        _Reading(store, facts, claim, name, list(listed))
        for name, listed in groupby(claim.files, key=lambda file: file.format)
    ]
    first, *others = readings
    for reading in readings:
        done = sum(file.bytes for file in files)
        there = reading.read(_behind(done, on_advance))
        findings.extend(reading.findings(there, None if sidecar is None else sidecar.lengths))
        files += [file for file in there if file is not None]
    for other in others:
        if first.scan.tokens_seen == other.scan.tokens_seen:  # else the size of one of them was reported
            sums = (first.sums, other.sums)
            difference = find_difference(store, facts.dtype, first.listed, other.listed, sums)
            findings += [] if difference is None else [difference]
    tokens = first.scan.tokens if len(files) == len(claim.files) else None
    return ShardCheck(claim, tuple(findings), tuple(files), tokens, sidecar_sha256, sidecar_ends(sidecar))


def _behind(done: int, on_advance: OnAdvance) -> OnAdvance:
    """Tells of bytes that are read after `done` others."""
    return lambda size: on_advance(done + size)


class _Reading:
    """One pass over the files of a shard in one format."""

    def __init__(self, store: Store, facts: Facts, claim: ShardClaim, name: str, listed: list[ClaimedFile]) -> None:
        self._store = store
        self._facts = facts
        self._claim = claim
        self.listed = listed
        self.sums = TokenSums()
        self._is_one_of_several = len({file.format for file in claim.files}) > 1
        self._decoder = decoder_of(name)
        self.scan = self._decoder.scan(facts.dtype)
        self._largest, self._largest_at = -1, 0

    def read(self, on_advance: OnAdvance) -> list[ClaimedFile | None]:
        """The files as their bytes are; None for one that is missing."""
        found: list[ClaimedFile | None] = []
        done = 0
        for number, file in enumerate(self.listed):
            read = self._read_file(number, file, _behind(done, on_advance))
            done += 0 if read is None else read.bytes
            found.append(read)
        return found

    def _read_file(self, number: int, file: ClaimedFile, on_advance: OnAdvance) -> ClaimedFile | None:
        if self._store.stat(file.path) is None:
            return None
        crc, digest, size = 0, sha256(), 0
        try:
            while chunk := self._store.read_range(file.path, size, size + _CHUNK_BYTES):
                crc = google_crc32c.extend(crc, chunk)
                digest.update(chunk)
                before = self.scan.tokens_seen
                tokens = self.scan.take(number, chunk)
                if self._is_one_of_several:
                    self.sums.add(tokens)
                if len(tokens) and int(tokens.max()) > self._largest:
                    self._largest, self._largest_at = int(tokens.max()), before + int(tokens.argmax())
                size += len(chunk)
                on_advance(size)
        except NotFound:
            return None
        return ClaimedFile(file.format, file.path, size, f"{crc:08x}", digest.hexdigest())

    def findings(self, there: list[ClaimedFile | None], lengths: NDArray[np.uint32] | None) -> Iterator[Finding]:
        """The defects of these files. Of a file that is missing or has another size, only that is reported."""
        problems = list(self.scan.problems(self._claim.tokens, lengths))
        for number, (listed, found) in enumerate(zip(self.listed, there, strict=True)):
            if found is None:
                yield Finding(Fault.SHARD_MISSING, f"{listed.bytes:,} bytes", "nothing", listed.path)
                continue
            wanted = self._decoder.size(number, self._claim.tokens, self._facts.dtype)
            wanted = listed.bytes if wanted is None else wanted
            if found.bytes != listed.bytes or found.bytes != wanted:
                expected = f"{wanted:,} bytes ({self._claim.tokens:,} tokens; the table says {listed.bytes:,} bytes)"
                token = min(self.scan.tokens_seen, self._claim.tokens)
                yield Finding(Fault.SHARD_SIZE, expected, f"{found.bytes:,} bytes", listed.path, token)
                continue
            for problem in problems:
                if problem.number == number:
                    yield Finding(Fault.SHARD_HEADER, problem.expected, problem.found, listed.path)
            sums = (("CRC32C", listed.crc32c, found.crc32c), ("SHA-256", listed.sha256, found.sha256))
            for name, expected, is_now in sums:
                if expected != is_now:
                    yield Finding(Fault.SHARD_CHECKSUM, f"{name} {expected}", is_now, listed.path)
            if number == 0 and self._largest >= self._facts.vocab_size:
                expected = f"ids below {self._facts.vocab_size:,}"
                found_id = f"id {self._largest:,}"
                yield Finding(Fault.TOKEN_OUT_OF_RANGE, expected, found_id, listed.path, self._largest_at)


def check_neighbours(checks: list[ShardCheck]) -> list[Finding]:
    """Whether a document that leaves one shard of a stream enters the next one with as many tokens behind it.

    `checks`: all shards of one stream in order.
    """
    findings: list[Finding] = []
    behind = 0  # tokens, in earlier shards, of the document that goes on
    for check, following in pairwise([*checks, None]):
        assert check is not None
        if check.ends is None:
            return findings
        ends = check.ends
        if ends.skipped != behind:
            expected = f"{behind:,} tokens of the first document in earlier shards"
            findings.append(Finding(Fault.SIDECAR_WRONG, expected, f"{ends.skipped:,}", check.claim.sidecar_path))
        if ends.continues and following is None:
            what = "a last document that ends in the last shard"
            findings.append(Finding(Fault.SIDECAR_WRONG, what, "one that goes on", check.claim.sidecar_path))
        is_one = ends.entries == 1
        behind = (ends.last_length + (ends.skipped if is_one else 0)) if ends.continues else 0
    return findings
