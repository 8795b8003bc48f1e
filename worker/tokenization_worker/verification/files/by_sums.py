"""Checks one source file of a shuffled dataset: counts its documents, and compares the sums of their tokens.

Where a sum differs, each document of the file is looked up in the shards, so that a finding names the very place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from tokenization_worker.storage.open import open_store
from tokenization_worker.verification.advance import OnAdvance, ignore_advance
from tokenization_worker.verification.claims import FileClaim
from tokenization_worker.verification.compare import MOST_FINDINGS
from tokenization_worker.verification.decoders.record import CorruptSource
from tokenization_worker.verification.facts import Facts
from tokenization_worker.verification.files.claimed import FileCheck, FileTask, claimed_records, outcome_finding
from tokenization_worker.verification.files.counts import Counts
from tokenization_worker.verification.files.encode import BATCH_BYTES, DOCUMENT_BYTES, Encoded, Encoder
from tokenization_worker.verification.order import are_chosen
from tokenization_worker.verification.report import Fault, Finding
from tokenization_worker.verification.shards.documents import NoDocuments
from tokenization_worker.verification.shards.place_sums import sum_of
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


def check_shuffled(facts: Facts, task: FileTask, on_advance: OnAdvance = ignore_advance) -> FileCheck:
    """Compare the file's counts and sums with what the shards hold of it."""
    counts = Counts(task, facts)
    sums = [0] * facts.streams_of_files
    findings: list[Finding] = []
    compared = tokens = 0
    try:
        for batch in _read(facts, task, task.one_in, counts, on_advance):
            sums[batch.stream] = (sums[batch.stream] + sum_of(task.claim.number, batch.positions, batch.tokens)) & _MASK
            findings += _text_lost(task, batch, MOST_FINDINGS - len(findings))
            compared += len(batch.positions)
            tokens += sum(map(len, batch.tokens))
    except CorruptSource as damage:
        findings.append(outcome_finding(task.claim, f"{damage.outcome}: {damage.detail}"))
    else:
        findings += counts.findings()
        if tuple(sums) != task.sums:
            found = list(islice(_look_up(facts, task), MOST_FINDINGS))
            findings += found or [_sums_differ(task.claim, sums, task.sums)]
    return FileCheck(tuple(findings), counts.documents, counts.refused, compared, tokens)


def _read(
    facts: Facts, task: FileTask, one_in: int, counts: Counts, on_advance: OnAdvance = ignore_advance
) -> Iterator[_Batch]:
    """The file's documents that the sample takes, about a MiB of text at a time, by stream."""
    encoder = Encoder(facts)
    waiting: list[list[tuple[int, str]]] = [[] for _ in range(facts.streams_of_files)]
    size = 0

    def encode() -> Iterator[_Batch]:
        for number, documents in enumerate(waiting):
            positions = np.array([position for position, _ in documents], np.int64)
            chosen = are_chosen(np.full(len(positions), task.claim.number), positions, one_in)
            mine = [document for document, yes in zip(documents, chosen.tolist(), strict=True) if yes]
            places = [position for position, _ in mine]
            if mine:
                yield _Batch(number, places, encoder.encode(task.claim.uri, places, [text for _, text in mine]))
            documents.clear()

    for record in claimed_records(facts, task.claim, on_advance):
        stream = counts.add(record)
        if stream is None or record.text is None:
            continue
        waiting[stream].append((record.position, record.text))
        size += len(record.text) + DOCUMENT_BYTES
        if size >= BATCH_BYTES:
            yield from encode()
            size = 0
    yield from encode()


def _text_lost(task: FileTask, batch: _Batch, most: int) -> Iterator[Finding]:
    for position, encoded in zip(batch.positions, batch.encoded, strict=True):
        if encoded.lost is not None and most > 0:
            most -= 1
            text, kept = encoded.lost
            yield Finding(Fault.TEXT_LOST, repr(text), repr(kept), uri=task.claim.uri, position=position)


def _sums_differ(claim: FileClaim, expected: list[int], found: tuple[int, ...]) -> Finding:
    words = [", ".join(f"{number:#018x}" for number in sums) for sums in (expected, found)]
    what = f"sums {words[0]} over the tokens of its documents"
    return Finding(Fault.TOKENS_DIFFER, what, f"{words[1]} in the shards", uri=claim.uri)


def _look_up(facts: Facts, task: FileTask) -> Iterator[Finding]:
    """What is wrong with the file's documents, one by one."""
    store, claim = open_store(facts.uri), task.claim
    streams = [Stream(store, facts, claim.first_stream + number) for number in range(facts.streams_of_files)]
    listed = [_find_places(stream, claim.number) for stream in streams]
    for batch in _read(facts, task, 1, Counts(task, facts)):
        stream, places = streams[batch.stream], listed[batch.stream]
        for position, tokens in zip(batch.positions, batch.tokens, strict=True):
            spans = places.pop(position, []) if len(tokens) else []
            yield from _compare(stream, claim, position, tokens, spans)
    for stream, places in zip(streams, listed, strict=True):
        for position, spans in places.items():
            path, token = stream.place(spans[0][0])
            words = f"a document at {position:,}, where the file has none"
            yield Finding(Fault.TOKENS_ADDED, "documents of the file", words, path, token, claim.uri, position)


def _compare(
    stream: Stream, claim: FileClaim, position: int, tokens: Tokens, spans: list[tuple[int, int]]
) -> Iterator[Finding]:
    """What is wrong with one document, which the sidecars have at `spans` of the stream."""
    if not len(tokens):
        return
    if not spans:
        expected = f"its {len(tokens):,} tokens"
        yield Finding(Fault.DOCUMENT_LOST, expected, "none of them", uri=claim.uri, position=position)
        return
    start, end = spans[0]
    path, token = stream.place(start)
    if len(spans) > 1:
        words = (f"one time the {len(tokens):,} tokens of the document", f"them {len(spans)} times")
        yield Finding(Fault.DOCUMENT_DOUBLED, *words, path, token, claim.uri, position)
    found = stream.tokens(start, end)
    differ = difference(tokens, found)
    if len(differ) or len(tokens) != len(found):
        at = int(differ[0]) if len(differ) else min(len(tokens), len(found))
        path, token = stream.place(start + at)
        expected = f"{len(tokens):,} tokens, from token {at:,} on {_shown(tokens[at:])}"
        there = f"{len(found):,} tokens, {_shown(found[at:])}"
        yield Finding(Fault.TOKENS_DIFFER, expected, there, path, token, claim.uri, position)


def _shown(tokens: Tokens) -> str:
    return str(tokens[:8].tolist())


def _find_places(stream: Stream, file: int) -> dict[int, list[tuple[int, int]]]:
    """By position, where the file's documents stand in the stream, by the sidecars: tokens [start, end)."""
    places: dict[int, list[tuple[int, int]]] = {}
    for shard in stream.shards:
        try:
            sidecar = parse_scattered(stream.read_documents(shard))
        except NoDocuments:
            continue  # reported with the shard
        for entry in np.flatnonzero(sidecar.files == file).tolist():
            position, end = int(sidecar.positions[entry]), shard.start + int(sidecar.ends[entry])
            spans = places.setdefault(position, [])
            if entry == 0 and sidecar.skipped and spans:
                spans[-1] = (spans[-1][0], end)  # it goes on from the shard before
            else:
                spans.append((end - int(sidecar.lengths[entry]), end))
    return places
