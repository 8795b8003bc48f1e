"""Checks one shard's bytes against the dataset's claims: sizes, headers, checksums, ids, and its sidecar or parts.

Needs no source. Reads every byte of the shard once, in chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import groupby, pairwise
from typing import NamedTuple, Protocol

import numpy as np

from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.storage.open import open_store
from tokenization_worker.verification.advance import OnAdvance, ignore_advance
from tokenization_worker.verification.claims import ClaimedFile, SequenceClaim, ShardClaim
from tokenization_worker.verification.facts import Facts
from tokenization_worker.verification.formats.base import Expected, TokenArray
from tokenization_worker.verification.formats.registry import decoder_of
from tokenization_worker.verification.report import Fault, Finding
from tokenization_worker.verification.shards.delimiters import DelimiterCheck
from tokenization_worker.verification.shards.documents import NoDocuments
from tokenization_worker.verification.shards.file_sums import checksum_findings, read_file
from tokenization_worker.verification.shards.packing import hash_parts
from tokenization_worker.verification.shards.place_sums import FileSums, PlaceSums
from tokenization_worker.verification.shards.places import (
    Pieces,
    Place,
    disorder,
    documents_of,
    find_disorder,
    places_at_ends,
    rows_of,
)
from tokenization_worker.verification.shards.row_tokens import RowTokens
from tokenization_worker.verification.shards.rows import RowEnds, check_parts, check_row_neighbours
from tokenization_worker.verification.shards.same_tokens import TokenSums, find_difference
from tokenization_worker.verification.shards.scattered import ScatteredSidecar, parse_scattered
from tokenization_worker.verification.shards.sidecar import (
    Sidecar,
    SidecarEnds,
    check_sidecar,
    check_sidecar_neighbours,
    parse_sidecar,
    sidecar_ends,
)


class Observer(Protocol):
    """Sees the tokens of a shard while they are read."""

    def take(self, before: int, tokens: TokenArray, /) -> None:
        """The next tokens; `before`: how many there were."""
        ...


class ShardOrder(NamedTuple):
    """Of a shuffled shard: the places of its first and last unit, and whether the first one begins in the shard
    before."""

    first: Place
    last: Place
    is_continued: bool


@dataclass(frozen=True, slots=True)
class ShardCheck:
    """What the shard is, by its bytes: `files` are those that are there.

    `stored`: tokens in them, padding included; None: a file is missing, or has no header. `sidecar`, `rows`: of a shard
    that should have the one or the other; None where that cannot be used. `sums`: what a reordered shard adds to its
    files, None where some of its tokens cannot be read. `order`: of a shuffled shard whose sidecar or parts are usable.
    `packed`: of a shard of shuffled packed rows, the sum of the hashes of its parts; None where these are not usable.
    """

    claim: ShardClaim
    findings: tuple[Finding, ...]
    files: tuple[ClaimedFile, ...]
    stored: int | None
    documents_sha256: str
    sidecar: SidecarEnds | None = None
    rows: RowEnds | None = None
    sums: FileSums | None = None
    order: ShardOrder | None = None
    packed: int | None = None

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)

    @property
    def tokens(self) -> int | None:
        """Of documents; None where they cannot be counted."""
        if self.stored is None or not self.claim.rows:
            return self.stored
        return None if self.rows is None else self.rows.tokens

    @property
    def ends(self) -> SidecarEnds | RowEnds | None:
        """The one of both that there is."""
        return self.rows if self.claim.rows else self.sidecar


def check_shard(
    facts: Facts, claim: ShardClaim, on_advance: OnAdvance = ignore_advance, *, one_in: int = 0
) -> ShardCheck:
    """Read all files of the shard; every difference is a finding. `on_advance` gets the files' bytes. `one_in`: of a
    reordered shard, which documents' tokens are added up; 0: none.
    """
    store = open_store(facts.uri)
    if facts.sequence is None:
        return _check_run(store, facts, claim, on_advance, one_in)
    return _check_rows(store, facts, facts.sequence, claim, on_advance, one_in)


def _check_run(store: Store, facts: Facts, claim: ShardClaim, on_advance: OnAdvance, one_in: int) -> ShardCheck:
    sidecar: Sidecar | ScatteredSidecar | None = None
    sidecar_sha256 = ""
    findings: list[Finding] = []
    try:
        data = store.read(claim.sidecar_path)
        sidecar_sha256 = sha256(data).hexdigest()
        sidecar = parse_sidecar(data) if facts.shuffle is None else parse_scattered(data)
    except NotFound:
        findings.append(Finding(Fault.SIDECAR_MISSING, "a documents sidecar", "nothing", claim.sidecar_path))
    except NoDocuments as error:
        findings.append(Finding(Fault.SIDECAR_CORRUPT, "a documents sidecar", str(error), claim.sidecar_path))
    if sidecar is not None:
        findings.extend(check_sidecar(claim, sidecar, sidecar_sha256))
    expected = Expected(claim.stored, None if sidecar is None else sidecar.lengths, claim.index)
    delimiters = None if sidecar is None else DelimiterCheck(facts, sidecar)
    pieces = sidecar.pieces if isinstance(sidecar, ScatteredSidecar) else None
    sums = None if pieces is None else PlaceSums(pieces, one_in)
    observers = [observer for observer in (delimiters, sums) if observer is not None]
    tokens = _read_tokens(store, facts, claim, expected, observers, on_advance)
    findings += tokens.findings
    if delimiters is not None and not findings:  # else the files are known not to be those that were written
        findings += delimiters.findings(claim.path)
    order = None
    if pieces is not None:
        found, order = _check_order(facts, claim, pieces)
        findings += found
    return ShardCheck(
        claim,
        tuple(findings),
        tokens.files,
        tokens.stored,
        sidecar_sha256,
        sidecar=sidecar_ends(sidecar),
        sums=sums.by_file() if sums is not None and tokens.are_whole else None,
        order=order,
    )


def _check_order(facts: Facts, claim: ShardClaim, pieces: Pieces) -> tuple[list[Finding], ShardOrder]:
    """Of a shard of a shuffled dataset: what is wrong with its order, and what its neighbours need of it."""
    shuffle = facts.shuffle
    assert shuffle is not None, "only then is there an order"
    units = rows_of(pieces, facts.row_length) if shuffle.by_row else documents_of(pieces)
    first, last = places_at_ends(units, shuffle.seed)
    return find_disorder(claim, units, shuffle.seed), ShardOrder(first, last, units.is_continued)


def _check_rows(
    store: Store, facts: Facts, sequence: SequenceClaim, claim: ShardClaim, on_advance: OnAdvance, one_in: int
) -> ShardCheck:
    parts = check_parts(store, sequence, claim, on_advance)
    behind = 0 if parts.file is None else parts.file.bytes
    row_tokens = None if parts.parts is None else RowTokens(facts, parts.parts, claim)
    lengths = np.full(claim.rows, sequence.length, dtype=np.uint32)
    expected = Expected(claim.stored, lengths, claim.index, None if parts.parts is None else parts.parts.firsts())
    pieces = sums = None
    if parts.parts is not None and facts.is_reordered:
        pieces = parts.parts.pieces
        sums = PlaceSums(pieces, one_in, facts.column_length)
    observers = [observer for observer in (row_tokens, sums) if observer is not None]
    tokens = _read_tokens(store, facts, claim, expected, observers, _behind(behind, on_advance))
    found = [*parts.findings, *tokens.findings]
    has_end_token = None
    if row_tokens is not None and not found:  # else the files are known not to be those that were written
        found += row_tokens.findings()
        has_end_token = row_tokens.has_end_token
    order = packed = None
    if parts.parts is not None and pieces is not None and facts.shuffle is not None:
        disorder_found, order = _check_order(facts, claim, pieces)
        found += disorder_found
        if facts.are_packed_rows_shuffled:
            packed = int(hash_parts(parts.parts.stored, facts.shuffle.seed)[1].sum(dtype=np.uint64))
    files = tokens.files if parts.file is None else (*tokens.files, parts.file)
    stored = None if parts.file is None else tokens.stored
    ends = parts.ends(has_end_token)
    of_files = sums.by_file() if sums is not None and tokens.are_whole else None
    return ShardCheck(claim, tuple(found), files, stored, "", rows=ends, sums=of_files, order=order, packed=packed)


class _TokensRead(NamedTuple):
    """The files with tokens as they are; `stored` None: one is missing, or the main one has no header. `are_whole`:
    observers have seen as many tokens as there should be."""

    files: tuple[ClaimedFile, ...]
    stored: int | None
    findings: list[Finding]
    are_whole: bool


def _read_tokens(
    store: Store,
    facts: Facts,
    claim: ShardClaim,
    expected: Expected,
    observers: Sequence[Observer],
    on_advance: OnAdvance,
) -> _TokensRead:
    """Read the tokens in all formats; `observers` see those of the first."""
    findings: list[Finding] = []
    files: list[ClaimedFile] = []
    readings = [
        _Reading(store, facts, claim, name, list(listed))
        for name, listed in groupby(claim.token_files, key=lambda file: file.format)
    ]
    first, *others = readings
    first.observers = observers
    for reading in readings:
        done = sum(file.bytes for file in files)
        there = reading.read(_behind(done, on_advance))
        findings.extend(reading.findings(there, expected))
        files += [file for file in there if file is not None]
    for other in others:
        if first.scan.tokens_seen == other.scan.tokens_seen:  # else the size of one of them was reported
            sums = (first.sums, other.sums)
            difference = find_difference(store, facts.dtype, first.listed, other.listed, sums)
            findings += [] if difference is None else [difference]
    stored = first.scan.tokens if len(files) == len(claim.token_files) else None
    return _TokensRead(tuple(files), stored, findings, first.scan.tokens_seen == claim.stored)


def _behind(done: int, on_advance: OnAdvance) -> OnAdvance:
    """Tells of bytes that are read after `done` others."""
    return lambda size: on_advance(done + size)


class _Reading:
    """One pass over the files of a shard in one format."""

    observers: Sequence[Observer] = ()

    def __init__(self, store: Store, facts: Facts, claim: ShardClaim, name: str, listed: list[ClaimedFile]) -> None:
        self._store = store
        self._facts = facts
        self._claim = claim
        self.listed = listed
        self.sums = TokenSums()
        self._is_one_of_several = len({file.format for file in claim.token_files}) > 1
        self._decoder = decoder_of(name)
        self.scan = self._decoder.scan(facts.dtype, facts.row_length)
        self._largest, self._largest_at = -1, 0

    def read(self, on_advance: OnAdvance) -> list[ClaimedFile | None]:
        """The files as their bytes are; None for one that is missing."""
        found: list[ClaimedFile | None] = []
        done = 0
        for number, file in enumerate(self.listed):
            read = read_file(self._store, file, partial(self._take, number), _behind(done, on_advance))
            done += 0 if read is None else read.bytes
            found.append(read)
        return found

    def _take(self, number: int, chunk: bytes) -> None:
        before = self.scan.tokens_seen
        tokens = self.scan.take(number, chunk)
        if self._is_one_of_several:
            self.sums.add(tokens)
        for observer in self.observers:
            observer.take(before, tokens)
        if len(tokens) and int(tokens.max()) > self._largest:
            if self._facts.sequence is not None:
                tokens = np.where(tokens == self._facts.sequence.pad_id, 0, tokens)  # it may be above the vocabulary
            self._largest, self._largest_at = int(tokens.max()), before + int(tokens.argmax())

    def findings(self, there: list[ClaimedFile | None], expects: Expected) -> Iterator[Finding]:
        """The defects of these files. Of a file that is missing or has another size, only that is reported."""
        expected_tokens = self._claim.stored
        problems = list(self.scan.problems(expects))
        for number, (listed, found) in enumerate(zip(self.listed, there, strict=True)):
            if found is None:
                yield Finding(Fault.SHARD_MISSING, f"{listed.bytes:,} bytes", "nothing", listed.path)
                continue
            wanted = self._decoder.size(number, expected_tokens, self._facts.dtype)
            wanted = listed.bytes if wanted is None else wanted
            if found.bytes != listed.bytes or found.bytes != wanted:
                expected = f"{wanted:,} bytes ({expected_tokens:,} tokens; the table says {listed.bytes:,} bytes)"
                token = min(self.scan.tokens_seen, expected_tokens)
                yield Finding(Fault.SHARD_SIZE, expected, f"{found.bytes:,} bytes", listed.path, token)
                continue
            for problem in problems:
                if problem.number == number:
                    yield Finding(Fault.SHARD_HEADER, problem.expected, problem.found, listed.path)
            yield from checksum_findings(listed, found)
            if number == 0 and self._largest >= self._facts.vocab_size:
                expected = f"ids below {self._facts.vocab_size:,}"
                found_id = f"id {self._largest:,}"
                yield Finding(Fault.TOKEN_OUT_OF_RANGE, expected, found_id, listed.path, self._largest_at)


def check_neighbours(facts: Facts, checks: Sequence[ShardCheck]) -> list[Finding]:
    """Whether the documents that leave a shard go on in the next one. `checks`: all of one stream, in order."""
    if facts.sequence is None:
        findings = list(check_sidecar_neighbours([(check.claim, check.sidecar) for check in checks]))
    else:
        findings = list(check_row_neighbours(facts.sequence, [(check.claim, check.rows) for check in checks]))
    ordered = [(check.claim, check.order) for check in checks if check.order is not None]
    return [*findings, *check_order_between(ordered)]


def check_file_numbers(check: ShardCheck, n_files: int) -> Iterator[Finding]:
    """Whether a reordered shard names files that there are."""
    largest = -1 if check.sums is None else int(check.sums.files.max(initial=0))
    if largest >= n_files:
        expected, found = f"numbers of {n_files:,} files", f"file {largest:,}"
        fault = Fault.PARTS_WRONG if check.claim.rows else Fault.SIDECAR_WRONG
        yield Finding(fault, expected, found, check.claim.documents_path)


def check_order_between(shards: Sequence[tuple[ShardClaim, ShardOrder]]) -> Iterator[Finding]:
    """Whether each shard begins behind the last unit of the one before, or with the rest of that document."""
    for (before, one), (claim, other) in pairwise(shards):
        if before.end != claim.start:
            continue  # a shard between them cannot be read, which is reported
        if one.last > other.first or (one.last == other.first and not other.is_continued):
            yield disorder(claim, one.last, other.first, 0)
