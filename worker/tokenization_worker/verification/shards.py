"""One shard's bytes against what the dataset says of them: size, header, checksums, ids, and its sidecar.

Needs no source. Reads every byte of the shard once, in chunks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise

import google_crc32c
import numpy as np

from tokenization_worker.storage.base import NotFound
from tokenization_worker.storage.open import open_store
from tokenization_worker.verification.advance import Tell, untold
from tokenization_worker.verification.facts import Facts, ShardClaim
from tokenization_worker.verification.report import Fault, Finding
from tokenization_worker.verification.stream import HEADER_BYTES, BadSidecar, Sidecar, parse_sidecar

_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class SidecarEnds:
    """What a sidecar says of the shard's two ends, for the comparison with its neighbours."""

    documents: int
    first_file: int
    first_position: int
    last_length: int
    entries: int
    skipped: int
    continues: bool


@dataclass(frozen=True, slots=True)
class ShardCheck:
    """What the shard is, by its bytes. `tokens` None: no header; `ends` None: no usable sidecar."""

    claim: ShardClaim
    findings: tuple[Finding, ...]
    size: int
    tokens: int | None
    crc32c: str
    sha256: str
    documents_sha256: str
    ends: SidecarEnds | None


@dataclass(frozen=True, slots=True)
class _Bytes:
    """What one pass over the file gave."""

    size: int
    crc32c: str
    sha256: str
    head: bytes
    largest: int
    largest_at: int


def check_shard(facts: Facts, claim: ShardClaim, tell: Tell = untold) -> ShardCheck:
    """Read the shard and its sidecar; every difference is a finding. `tell` hears of the shard's bytes."""
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
        findings.extend(_check_sidecar(claim, sidecar, sidecar_sha256))
    read = _read_shard(facts, claim, tell)
    if read is None:
        findings.append(Finding(Fault.SHARD_MISSING, f"{claim.bytes:,} bytes", "nothing", claim.path))
        return ShardCheck(claim, tuple(findings), 0, None, "", "", sidecar_sha256, _ends(sidecar))
    findings.extend(_check_bytes(facts, claim, read))
    tokens = _tokens_of_header(facts, read.head)
    return ShardCheck(
        claim, tuple(findings), read.size, tokens, read.crc32c, read.sha256, sidecar_sha256, _ends(sidecar)
    )


def _read_shard(facts: Facts, claim: ShardClaim, tell: Tell) -> _Bytes | None:
    store = open_store(facts.uri)
    entry = store.stat(claim.path)
    if entry is None:
        return None
    crc, digest, head, size = 0, sha256(), b"", 0
    largest, largest_at = -1, 0
    item = facts.dtype.itemsize
    try:
        while chunk := store.read_range(claim.path, size, size + _CHUNK_BYTES):
            crc = google_crc32c.extend(crc, chunk)
            digest.update(chunk)
            body = chunk if size else chunk[HEADER_BYTES:]
            tokens = np.frombuffer(body, dtype=facts.dtype, count=len(body) // item)
            if len(tokens) and int(tokens.max()) > largest:
                largest = int(tokens.max())
                largest_at = max(0, size - HEADER_BYTES) // item + int(tokens.argmax())
            head = head or chunk[:HEADER_BYTES]
            size += len(chunk)
            tell(size)
    except NotFound:
        return None
    return _Bytes(size, f"{crc:08x}", digest.hexdigest(), head, largest, largest_at)


def _check_bytes(facts: Facts, claim: ShardClaim, read: _Bytes) -> list[Finding]:
    wanted = HEADER_BYTES + claim.tokens * facts.dtype.itemsize
    if read.size != claim.bytes or read.size != wanted:
        token = max(0, read.size - HEADER_BYTES) // facts.dtype.itemsize
        expected = f"{wanted:,} bytes ({claim.tokens:,} tokens; the table says {claim.bytes:,} bytes)"
        found = f"{read.size:,} bytes"
        return [Finding(Fault.SHARD_SIZE, expected, found, claim.path, min(token, claim.tokens))]
    findings = []
    if _tokens_of_header(facts, read.head) != claim.tokens:
        expected = f"a header of {claim.tokens:,} tokens of {facts.dtype.name}"
        findings.append(Finding(Fault.SHARD_HEADER, expected, repr(read.head[:HEADER_BYTES]), claim.path))
    sums = (("CRC32C", claim.crc32c, read.crc32c), ("SHA-256", claim.sha256, read.sha256))
    for name, expected, found in sums:
        if expected != found:
            findings.append(Finding(Fault.SHARD_CHECKSUM, f"{name} {expected}", found, claim.path))
    if read.largest >= facts.vocab_size:
        expected = f"ids below {facts.vocab_size:,}"
        findings.append(
            Finding(Fault.TOKEN_OUT_OF_RANGE, expected, f"id {read.largest:,}", claim.path, read.largest_at)
        )
    return findings


_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00\x76\x00\{'descr': '(<u[24])', 'fortran_order': False, 'shape': \(([0-9]{1,18}),\), \} *\n"
)


def _tokens_of_header(facts: Facts, head: bytes) -> int | None:
    """The number of tokens by the .npy header; None if it is not the header of a shard of this dataset.

    numpy parses a shard's header as Python, so a header in any other spelling than numpy's is refused.
    """
    found = _HEADER.fullmatch(head)
    return int(found[2]) if found and len(head) == HEADER_BYTES and found[1].decode() == facts.dtype.str else None


def _check_sidecar(claim: ShardClaim, sidecar: Sidecar, digest: str) -> list[Finding]:
    findings = []
    begun = len(sidecar.lengths) - (sidecar.skipped > 0)
    for what, expected, found in (
        ("tokens", claim.tokens, int(sidecar.lengths.sum())),
        ("documents that begin in the shard", claim.documents, begun),
        ("documents in its own header", claim.documents, sidecar.documents),
        ("entries of no tokens", 0, int((sidecar.lengths == 0).sum())),
    ):
        if expected != found:
            expected_words = f"{expected:,} {what}"
            findings.append(Finding(Fault.SIDECAR_WRONG, expected_words, f"{found:,}", claim.sidecar_path))
    if digest != claim.documents_sha256:
        expected_words = f"SHA-256 {claim.documents_sha256}"
        findings.append(Finding(Fault.SIDECAR_WRONG, expected_words, digest, claim.sidecar_path))
    return findings


def _ends(sidecar: Sidecar | None) -> SidecarEnds | None:
    if sidecar is None or not len(sidecar.lengths):
        return None
    return SidecarEnds(
        documents=sidecar.documents,
        first_file=sidecar.first_file,
        first_position=sidecar.first_position,
        last_length=int(sidecar.lengths[-1]),
        entries=len(sidecar.lengths),
        skipped=sidecar.skipped,
        continues=sidecar.continues,
    )


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
