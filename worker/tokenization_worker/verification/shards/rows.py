"""Checks what the file of parts says of a shard's rows, and of the borders between shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tokenization_worker.storage.base import Store
from tokenization_worker.verification.advance import OnAdvance
from tokenization_worker.verification.claims import ClaimedFile, SequenceClaim, ShardClaim
from tokenization_worker.verification.report import Fault, Finding
from tokenization_worker.verification.shards.documents import NoDocuments
from tokenization_worker.verification.shards.file_sums import checksum_findings, read_file
from tokenization_worker.verification.shards.packing import find_packing_fault
from tokenization_worker.verification.shards.parts import Part, Parts, describe_part, parse_parts, part_at
from tokenization_worker.verification.shards.tiling import TilingFault, find_fault_between, find_tiling_fault


@dataclass(frozen=True, slots=True)
class RowEnds:
    """What parts say of the whole shard, and of its two ends. `tokens`: of documents.

    `has_end_token`: whether the last part ends with the delimiter behind a document; None where there is none or the
    token is missing.
    """

    documents: int
    tokens: int
    first: Part
    last: Part
    has_end_token: bool | None

    @property
    def first_file(self) -> int:
        return self.first.file

    @property
    def first_position(self) -> int:
        return self.first.position


@dataclass(slots=True)
class PartsCheck:
    """The file of parts as its bytes are. `file` None: it is missing; `parts` None: none that tile the rows."""

    file: ClaimedFile | None
    parts: Parts | None = None
    findings: list[Finding] = field(default_factory=list)

    def ends(self, has_end_token: bool | None) -> RowEnds | None:
        if self.parts is None:
            return None
        stored = self.parts.stored
        first, last = (part_at(stored, number) for number in (0, -1))
        documents, tokens = int((stored["offset"] == 0).sum()), int(stored["length"].sum(dtype="i8"))
        return RowEnds(documents, tokens, first, last, has_end_token)


def check_parts(store: Store, sequence: SequenceClaim, claim: ShardClaim, on_advance: OnAdvance) -> PartsCheck:
    """Read the file of parts; every difference from the tables, and the first part that cannot be, is a finding."""
    listed = claim.files[-1]
    chunks: list[bytes] = []
    check = PartsCheck(read_file(store, listed, chunks.append, on_advance))
    if check.file is None:
        check.findings.append(Finding(Fault.SHARD_MISSING, f"{listed.bytes:,} bytes", "nothing", listed.path))
        return check
    if check.file.bytes != listed.bytes:
        expected, found = f"{listed.bytes:,} bytes", f"{check.file.bytes:,} bytes"
        check.findings.append(Finding(Fault.SHARD_SIZE, expected, found, listed.path))
    check.findings.extend(checksum_findings(listed, check.file) if check.file.bytes == listed.bytes else ())
    try:
        parts = parse_parts(b"".join(chunks), sequence.length)
    except NoDocuments as error:
        check.findings.append(Finding(Fault.SHARD_HEADER, "a file of parts", str(error), listed.path))
        return check
    fault = find_tiling_fault(parts.stored, claim.rows, sequence)
    if fault is not None:
        check.findings.append(_tiling_finding(fault, parts, listed.path))
        return check
    check.parts = parts
    check.findings.extend(_count_findings(claim, parts))
    if (
        sequence.packing is not None and not check.findings
    ):  # else the parts are known not to be those that were written
        packing_fault = find_packing_fault(parts.stored, sequence.length, sequence.packing, claim)
        if packing_fault is not None:
            check.findings.append(_tiling_finding(packing_fault, parts, listed.path))
    return check


def _tiling_finding(fault: TilingFault, parts: Parts, path: str) -> Finding:
    token = int(parts.tokens[fault.number]) if fault.number < len(parts.tokens) else None
    return Finding(fault.fault, fault.expected, f"part {fault.number:,}: {fault.found}", path, token)


def _count_findings(claim: ShardClaim, parts: Parts) -> Iterator[Finding]:
    for what, expected, found in (
        ("tokens of documents", claim.tokens, int(parts.stored["length"].sum(dtype="i8"))),
        ("documents that begin in the shard", claim.documents, int((parts.stored["offset"] == 0).sum())),
    ):
        if expected != found:
            yield Finding(Fault.PARTS_WRONG, f"{expected:,} {what}", f"{found:,}", claim.documents_path)


def check_row_neighbours(
    sequence: SequenceClaim, shards: Sequence[tuple[ShardClaim, RowEnds | None]]
) -> Iterator[Finding]:
    """Whether the rows of each shard go on where those of the shard before end. `shards`: all of a stream, in order."""
    before: RowEnds | None = None
    for number, (claim, ends) in enumerate(shards):
        if ends is not None and (before is not None or number == 0):
            edge = None if before is None else before.last
            fault = find_fault_between(edge, ends.first, sequence)
            if fault is not None:
                yield Finding(fault.fault, fault.expected, f"part 0: {fault.found}", claim.documents_path, 0)
            elif before is not None and before.has_end_token is (ends.first.offset > 0):
                way = "another document than" if before.has_end_token else "the document of"
                has = "has" if before.has_end_token else "lacks"
                expected = f"{way} the last part of the shard before, which {has} its end token"
                found = describe_part(ends.first)
                yield Finding(Fault.PARTS_WRONG, expected, found, claim.documents_path, 0)
        before = ends
    if before is not None and before.has_end_token is False:
        expected = "a delimiter as the last token of the last document"
        claim = shards[-1][0]
        yield Finding(Fault.DELIMITER_WRONG, expected, "another token", claim.path, _end_of(before, sequence) - 1)


def _end_of(ends: RowEnds, sequence: SequenceClaim) -> int:
    return ends.last.row * sequence.length + ends.last.start + ends.last.length
