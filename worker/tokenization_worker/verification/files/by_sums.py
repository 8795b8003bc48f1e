"""Checks one source file of a reordered dataset: counts its documents, and compares the sums of their tokens.

Where sums differ, `look_up` looks each document of the file up in the shards, so that a finding names the very place.
That reads what describes all shards of a stream, so `verify` asks for it for a few files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.output import layout
from tokenization_worker.storage.open import open_store
from tokenization_worker.verification.advance import OnAdvance, ignore_advance
from tokenization_worker.verification.claims import FileClaim
from tokenization_worker.verification.compare import MOST_FINDINGS
from tokenization_worker.verification.decoders.record import CorruptSource
from tokenization_worker.verification.facts import Facts
from tokenization_worker.verification.files.batches import read_batches
from tokenization_worker.verification.files.claimed import EncodedDocuments, FileCheck, FileTask, outcome_finding
from tokenization_worker.verification.files.counts import Counts
from tokenization_worker.verification.files.encode import Encoded, Encoder
from tokenization_worker.verification.order import are_chosen, hash_places, hash_tokens
from tokenization_worker.verification.report import Fault, Finding
from tokenization_worker.verification.shards.documents import NoDocuments
from tokenization_worker.verification.shards.parts import parse_parts
from tokenization_worker.verification.shards.place_sums import columns_of
from tokenization_worker.verification.shards.scattered import parse_scattered
from tokenization_worker.verification.stream import Stream, Tokens, difference

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class _Batch:
    """Documents of one stream of the file, encoded again."""

    stream: int
    positions: list[int]
    encoded: list[Encoded]

    @property
    def tokens(self) -> list[Tokens]:
        return [each.tokens for each in self.encoded]


def check_reordered(facts: Facts, task: FileTask, on_advance: OnAdvance = ignore_advance) -> FileCheck:
    """Compare the file's counts and sums with what the shards hold of it."""
    counts = Counts(task, facts)
    sums = [0] * facts.streams_of_files
    begins = list(task.claim.starts)  # of the next document in each stream
    truncated = [0] * facts.streams_of_files
    findings: list[Finding] = []
    kept: list[EncodedDocuments] = []
    compared = tokens = 0
    unequal: tuple[int, ...] = ()
    try:
        for batch in _read(facts, task, task.one_in, counts, on_advance):
            lengths = np.array([len(each) for each in batch.tokens], np.int64)
            found = _sum_of(facts, task, batch, begins[batch.stream] + np.cumsum(lengths) - lengths)
            sums[batch.stream] = (sums[batch.stream] + found) & _MASK
            begins[batch.stream] += int(lengths.sum())
            truncated[batch.stream] += sum(each.truncated for each in batch.encoded)
            if task.keeps_documents:
                kept.append(_describe(task.claim, batch, lengths))
            findings += _text_lost(task, batch, MOST_FINDINGS - len(findings))
            compared += len(batch.positions)
            tokens += sum(map(len, batch.tokens))
    except CorruptSource as damage:
        findings.append(outcome_finding(task.claim, f"{damage.outcome}: {damage.detail}"))
    else:
        findings += counts.findings()
        if task.one_in == 1 and facts.longest_document is not None and tuple(truncated) != task.claim.truncated:
            expected, found_words = (" + ".join(f"{each:,}" for each in of) for of in (truncated, task.claim.truncated))
            what = f"{expected} tokens of documents that are longer than a row"
            findings.append(Finding(Fault.FILE_COUNTS, what, found_words, layout.FILES_TABLE, uri=task.claim.uri))
        pairs = enumerate(zip(sums, task.sums, strict=True))
        unequal = tuple(number for number, (own, found) in pairs if found not in (None, own))
    return FileCheck(tuple(findings), counts.documents, counts.refused, compared, tokens, unequal, tuple(kept))


def _describe(claim: FileClaim, batch: _Batch, lengths: NDArray[np.int64]) -> EncodedDocuments:
    positions, some = np.array(batch.positions, np.int64), lengths > 0
    stream = claim.first_stream + batch.stream
    return EncodedDocuments(stream, claim.number, positions[some], lengths[some].astype(np.uint32))


@dataclass(frozen=True, slots=True)
class Unequal:
    """A file whose sums differ in these streams, counted in its group."""

    claim: FileClaim
    streams: tuple[int, ...]


def look_up(facts: Facts, file: Unequal, on_advance: OnAdvance = ignore_advance) -> tuple[Finding, ...]:
    """What is wrong with the file's documents, one by one."""
    found = tuple(islice(_look_up(facts, file, on_advance), MOST_FINDINGS))
    if found:
        return found
    if facts.column_length:
        what = "rows that its documents fill one after the other"
        return (Finding(Fault.ROWS_DIFFER, what, "its documents, cut into other rows", uri=file.claim.uri),)
    return (not_looked_up(file),)


def not_looked_up(file: Unequal) -> Finding:
    """That there is something wrong with the file's documents."""
    what = "the tokens of its documents"
    return Finding(Fault.TOKENS_DIFFER, what, "others; nobody looked for the place", uri=file.claim.uri)


def _read(
    facts: Facts, task: FileTask, one_in: int, counts: Counts, on_advance: OnAdvance = ignore_advance
) -> Iterator[_Batch]:
    """The file's documents that the sample takes, encoded again, by stream."""
    encoder = Encoder(facts)
    for number, documents in read_batches(facts, task, counts, on_advance):
        positions = np.array([position for position, _ in documents], np.int64)
        chosen = are_chosen(np.full(len(positions), task.claim.number), positions, one_in)
        mine = [document for document, yes in zip(documents, chosen.tolist(), strict=True) if yes]
        places = [position for position, _ in mine]
        if mine:
            yield _Batch(number, places, encoder.encode(task.claim.uri, places, [text for _, text in mine]))


def _sum_of(facts: Facts, task: FileTask, batch: _Batch, begins: NDArray[np.int64]) -> int:
    """The sum over the tokens of documents, which begin at these tokens of the stream."""
    if not batch.tokens:
        return 0
    columns = columns_of(begins, task.one_in, facts.column_length)
    files, positions = np.full(len(columns), task.claim.number), np.array(batch.positions, np.int64)
    lengths = np.array([len(tokens) for tokens in batch.tokens], np.int64)
    ids = np.concatenate(batch.tokens)
    numbers = np.arange(len(ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    places = np.repeat(hash_places(columns, files, positions), lengths)
    return int(hash_tokens(places, numbers, ids).sum(dtype=np.uint64))


def _text_lost(task: FileTask, batch: _Batch, most: int) -> Iterator[Finding]:
    for position, encoded in zip(batch.positions, batch.encoded, strict=True):
        if encoded.lost is not None and most > 0:
            most -= 1
            text, kept = encoded.lost
            yield Finding(Fault.TEXT_LOST, repr(text), repr(kept), uri=task.claim.uri, position=position)


class _Piece(NamedTuple):
    """Tokens [start, end) of the stream are those of a document from `offset` on."""

    offset: int
    start: int
    end: int


def _look_up(facts: Facts, file: Unequal, on_advance: OnAdvance) -> Iterator[Finding]:
    store, claim = open_store(facts.uri), file.claim
    streams = {number: Stream(store, facts, claim.first_stream + number) for number in file.streams}
    listed = {number: _find_places(facts, stream, claim.number) for number, stream in streams.items()}
    task = FileTask(claim, (), 1)
    for batch in _read(facts, task, 1, Counts(task, facts), on_advance):
        if batch.stream not in streams:
            continue
        stream, places = streams[batch.stream], listed[batch.stream]
        for position, tokens in zip(batch.positions, batch.tokens, strict=True):
            pieces = places.pop(position, []) if len(tokens) else []
            yield from _compare(stream, claim, position, tokens, pieces)
    for number, stream in streams.items():
        for position, pieces in listed[number].items():
            path, token = stream.place(pieces[0].start)
            words = f"a document at {position:,}, where the file has none"
            yield Finding(Fault.TOKENS_ADDED, "documents of the file", words, path, token, claim.uri, position)


def _compare(
    stream: Stream, claim: FileClaim, position: int, tokens: Tokens, pieces: list[_Piece]
) -> Iterator[Finding]:
    """What is wrong with one document, which the shards have in these pieces."""
    if not len(tokens):
        return
    if not pieces:
        words = (f"its {len(tokens):,} tokens", "none of them")
        yield Finding(Fault.DOCUMENT_LOST, *words, uri=claim.uri, position=position)
        return
    at, place = 0, stream.place(pieces[0].start)
    for piece in sorted(pieces):
        if piece.offset > at:
            break
        place = stream.place(piece.start)
        if piece.offset < at:
            words = (f"one time the {len(tokens):,} tokens of the document", f"those from {piece.offset:,} on again")
            yield Finding(Fault.DOCUMENT_DOUBLED, *words, *place, claim.uri, position)
            return
        found = stream.tokens(piece.start, piece.end)
        expected = tokens[at : at + len(found)]
        differ = difference(expected, found)
        if len(differ) or len(expected) < len(found):
            first = int(differ[0]) if len(differ) else len(expected)
            place = stream.place(piece.start + first)
            yield _tokens_differ(claim, position, tokens, at + first, _shown(found[first:]), place)
            return
        at += len(found)
        place = stream.place(piece.end)
    if at < len(tokens):
        yield _tokens_differ(claim, position, tokens, at, "not these", place)


def _tokens_differ(
    claim: FileClaim, position: int, tokens: Tokens, at: int, found: str, place: tuple[str | None, int | None]
) -> Finding:
    """That the document's tokens from `at` on are not at `place`."""
    expected = f"{len(tokens):,} tokens, from token {at:,} on {_shown(tokens[at:])}"
    return Finding(Fault.TOKENS_DIFFER, expected, found, *place, claim.uri, position)


def _shown(tokens: Tokens) -> str:
    return str(tokens[:8].tolist())


def _find_places(facts: Facts, stream: Stream, file: int) -> dict[int, list[_Piece]]:
    """By position, where the pieces of the file's documents stand in the stream."""
    places: dict[int, list[_Piece]] = {}
    for shard in stream.shards:
        try:
            data = stream.read_documents(shard)
            described = parse_parts(data, facts.row_length) if facts.row_length else parse_scattered(data)
        except NoDocuments:
            continue  # reported with the shard
        mine = described.pieces.take(np.flatnonzero(described.pieces.files == file))
        starts = shard.start + mine.starts
        columns = (values.tolist() for values in (mine.positions, mine.offsets, starts, starts + mine.lengths))
        for position, *piece in zip(*columns, strict=True):
            places.setdefault(position, []).append(_Piece(*piece))
    return places
