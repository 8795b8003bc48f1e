"""Reads documents sidecars with code of its own, and checks them against what the tables claim of their shards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import orjson
from numpy.typing import NDArray

from tokenization_worker.verification.claims import ShardClaim
from tokenization_worker.verification.report import Fault, Finding

_MAGIC = b"TOKDOCS1"


class BadSidecar(Exception):
    """The sidecar is missing or its bytes are none; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A documents sidecar as it is stored; `lengths` u32[n], and their sums `ends` i64[n]: 12 bytes a document."""

    lengths: NDArray[np.uint32]
    ends: NDArray[np.int64]
    documents: int
    first_file: int
    first_position: int
    skipped: int
    continues: bool


def parse_sidecar(data: bytes) -> Sidecar:
    """The content of a sidecar's bytes; raises `BadSidecar`."""
    if data[:8] != _MAGIC:
        raise BadSidecar(f"begins with {data[:8]!r}, expected {_MAGIC!r}")
    try:
        header_end = 12 + int.from_bytes(data[8:12], "little")
        header = orjson.loads(data[12:header_end])
        lengths = np.frombuffer(data, dtype="<u4", offset=header_end + -header_end % 8)
        sidecar = Sidecar(
            lengths,
            np.cumsum(lengths, dtype=np.int64),
            int(header["documents"]),
            int(header["firstFile"]),
            int(header["firstPosition"]),
            int(header["skipped"]),
            bool(header["continues"]),
        )
        entries = int(header["entries"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadSidecar(f"{type(error).__name__}: {error}") from error
    if entries != len(lengths):
        raise BadSidecar(f"{len(lengths)} lengths, its header says {entries}")
    return sidecar


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


def check_sidecar(claim: ShardClaim, sidecar: Sidecar, digest: str) -> list[Finding]:
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


def sidecar_ends(sidecar: Sidecar | None) -> SidecarEnds | None:
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
