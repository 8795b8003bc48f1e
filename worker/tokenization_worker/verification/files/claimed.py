"""A source file to check, the result of its check, and its records from verify's own decoders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.errors import ChangedError
from tokenization_worker.output import layout
from tokenization_worker.storage.base import ByteReader, NotFound
from tokenization_worker.storage.source_file import Changed, SourceFile, describe_file
from tokenization_worker.storage.sources import open_unchanged
from tokenization_worker.storage.unchanged import require_unchanged
from tokenization_worker.verification.advance import OnAdvance
from tokenization_worker.verification.claims import FileClaim
from tokenization_worker.verification.decoders.record import CorruptSource, Record, refuse_crashing
from tokenization_worker.verification.decoders.source import read_records
from tokenization_worker.verification.facts import Facts
from tokenization_worker.verification.refused import Refusal, RefusedRows
from tokenization_worker.verification.report import Fault, Finding

Refusals = RefusedRows | tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class FileTask:
    """A file to check. `refused`: its rows of the quarantine table. `one_in`: 1 compares every document. `sums`: of a
    shuffled dataset, the sums over the file's tokens in each stream, by the shards; None: a shard cannot be read.
    `keeps_documents`: all documents are kept, so that they can be packed.
    """

    claim: FileClaim
    refused: Refusals
    one_in: int
    sums: tuple[int | None, ...] = ()
    keeps_documents: bool = False


class EncodedDocuments(NamedTuple):
    """Some documents of a file in a stream, in order and of one token or more. `positions` i64[n], `lengths` u32[n]."""

    stream: int
    file: int
    positions: NDArray[np.int64]
    lengths: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class FileCheck:
    """What the file gave. `unequal`: of a shuffled dataset, the streams whose sums differ, counted in the file's
    group. `encoded`: the documents of each stream of the dataset, where the task keeps them.
    """

    findings: tuple[Finding, ...]
    documents: int
    quarantined: int
    documents_compared: int
    tokens_compared: int
    unequal: tuple[int, ...] = ()
    encoded: tuple[EncodedDocuments, ...] = ()


def open_claimed(claim: FileClaim) -> ByteReader:
    """The very file that the dataset was made from; raises `ChangedError` if another one, or none, is there."""
    was = describe_file(SourceFile(claim.uri, claim.size, claim.version))
    try:
        return open_unchanged(claim.uri, claim.size, claim.version, claim.pin)
    except NotFound as error:
        now = "it no longer exists"
        cause: Exception = error
    except Changed as error:
        now = f"is {describe_file(error.now)}"
        cause = error
    raise ChangedError(
        "SourceChanged",
        f"{claim.uri} is not the file that this dataset was made from: was {was}; {now}",
        next_step="put that file back, or leave the source out: tokjob verify --mode checksums OUTPUT",
    ) from cause


def claimed_records(facts: Facts, claim: FileClaim, on_advance: OnAdvance) -> Iterator[Record]:
    """All records of the file; raises `CorruptSource` where it ends in damage, and `ChangedError` if it was changed."""
    stream = open_claimed(claim)
    crash_verdicts = facts.crash_verdicts.get(claim.uri, {})
    try:
        for record in read_records(stream, claim.uri, facts.rules, on_advance=on_advance):
            yield refuse_crashing(record, crash_verdicts)
        require_unchanged(stream)
    except CorruptSource:
        require_unchanged(stream)
        raise
    finally:
        stream.close()


def outcome_finding(claim: FileClaim, expected: str) -> Finding:
    """That the dataset tells another end of the file than its bytes do."""
    return Finding(Fault.FILE_OUTCOME, expected, claim.outcome, layout.FILES_TABLE, uri=claim.uri)
