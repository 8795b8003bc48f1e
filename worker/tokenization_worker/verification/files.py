"""One source file, read again: its documents counted, and some or all of them compared with the shards.

A sampled file in which anything is wrong is compared whole, so that a finding names the very place. Raises
`ChangedError` if the file is not the one that the dataset was made from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tokenization_worker.api.data import DelimiterPosition
from tokenization_worker.errors import ChangedError, SpecError
from tokenization_worker.output import layout
from tokenization_worker.storage.base import ByteReader, NotFound
from tokenization_worker.storage.open import open_store
from tokenization_worker.storage.source_file import Changed, SourceFile, describe_file
from tokenization_worker.storage.sources import open_unchanged
from tokenization_worker.storage.unchanged import require_unchanged
from tokenization_worker.tokenizers.base import KillsEngine
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.tokenizers.restoring import show_loss
from tokenization_worker.verification.advance import Tell, untold
from tokenization_worker.verification.compare import Expected, StreamComparer
from tokenization_worker.verification.decoders.record import Damaged, Record
from tokenization_worker.verification.decoders.source import read_records, refuse_poison
from tokenization_worker.verification.facts import Facts, FileClaim, stream_of
from tokenization_worker.verification.refused import Refusal, RefusedRows
from tokenization_worker.verification.report import Fault, Finding
from tokenization_worker.verification.stream import BadSidecar, Stream, Tokens, difference

Refusals = RefusedRows | tuple[Refusal, ...]

_BATCH_BYTES = 1 << 20
"""Text that is encoded at once."""

_DOCUMENT_BYTES = 256
"""What a document counts besides its text: so many bytes of Python objects hold it at least, and an empty one, too."""


@dataclass(frozen=True, slots=True)
class FileTask:
    """A file to check. `refused`: its rows of the quarantine table. `one_in`: 1 compares every document."""

    claim: FileClaim
    refused: Refusals
    one_in: int


@dataclass(frozen=True, slots=True)
class FileCheck:
    """What the file gave."""

    findings: tuple[Finding, ...]
    documents: int
    quarantined: int
    documents_compared: int
    tokens_compared: int


class _Suspicion(Exception):
    """The sample does not fit: every document has to be looked at."""


def check_files(facts: Facts, tasks: tuple[FileTask, ...], tell: Tell = untold) -> list[FileCheck]:
    """Several files, one after the other; `tell` hears of the stored bytes of all."""
    checks = []
    before = 0
    for task in tasks:
        checks.append(check_file(facts, task, partial(_tell_of, tell, before)))
        before += task.claim.size
    return checks


def _tell_of(tell: Tell, before: int, size: int) -> None:
    tell(before + size)


def check_file(facts: Facts, task: FileTask, tell: Tell = untold) -> FileCheck:
    """Read the file and compare it with what the dataset holds of it."""
    if not task.claim.is_read:
        check = _check_dropped(facts, task.claim, tell)
    elif task.one_in == 1:
        check = _compare_all(facts, task, tell)
    else:
        try:
            check = _compare_sample(facts, task, tell)
        except (_Suspicion, BadSidecar):
            check = _compare_all(facts, task, tell)
    if check.findings:
        _open(task.claim).close()  # a file that was changed meanwhile is no fault of the dataset
    return check


def _open(claim: FileClaim) -> ByteReader:
    was = describe_file(SourceFile(claim.uri, claim.size, claim.version))
    try:
        return open_unchanged(claim.uri, claim.size, claim.version, claim.pin)
    except NotFound as error:
        now = "it is gone"
        cause: Exception = error
    except Changed as error:
        now = f"is {describe_file(error.now)}"
        cause = error
    raise ChangedError(
        "SourceChanged",
        f"{claim.uri} is not the file that this dataset was made from: was {was}; {now}",
        next_step="put that file back, or leave the source out: tokjob verify --mode checksums OUTPUT",
    ) from cause


def _records(facts: Facts, claim: FileClaim, tell: Tell) -> Iterator[Record]:
    stream = _open(claim)
    poison = facts.poison.get(claim.uri, {})
    try:
        for record in read_records(stream, claim.uri, facts.rules, tell=tell):
            yield refuse_poison(record, poison)
        require_unchanged(stream)
    except Damaged:
        require_unchanged(stream)
        raise
    finally:
        stream.close()


def _check_dropped(facts: Facts, claim: FileClaim, tell: Tell) -> FileCheck:
    """The file is as damaged as the dataset says; that nothing of it was written follows from the sums."""
    found = "Read"
    detail = ""
    try:
        for _ in _records(facts, claim, tell):
            pass
    except Damaged as damage:
        found, detail = damage.outcome, damage.detail
    if found == claim.outcome:
        return FileCheck((), 0, 0, 0, 0)
    finding = _outcome_finding(claim, f"{found}: {detail}" if detail else found)
    return FileCheck((finding,), 0, 0, 0, 0)


def _outcome_finding(claim: FileClaim, expected: str) -> Finding:
    return Finding(Fault.FILE_OUTCOME, expected, claim.outcome, layout.FILES_TABLE, uri=claim.uri)


class _Encoded(NamedTuple):
    """A document's tokens with its delimiter, and what its text lost, as `Expected` has it."""

    tokens: Tokens
    lost: tuple[str, str] | None


class _Batches:
    """Encodes documents with the reference engine, some at a time, and turns their tokens back into text."""

    def __init__(self, facts: Facts) -> None:
        tokenizer = load_tokenizer(facts.tokenizer)
        self._engine = tokenizer.reference
        self._restore = tokenizer.restore
        self._drop = tokenizer.drop
        self._delimiter = np.array([] if facts.delimiter_id is None else [facts.delimiter_id], dtype=np.int64)
        self._position = facts.delimiter_position
        self._empty = self._complete("", np.empty(0, np.int64))  # millions of documents may be empty

    def encode(self, uri: str, positions: list[int], texts: list[str]) -> list[_Encoded]:
        """Each text's tokens, and what it lost; SpecError for one of `uri` that the engine gives up on."""
        try:
            ids, ends = self._engine.encode(texts)
        except KillsEngine as kill:
            raise _cannot_encode(uri, positions[kill.document], kill.detail) from kill
        tokens, borders = ids.astype(np.int64), [0, *ends.tolist()]
        return [
            self._complete(text, tokens[start:end]) if text or start < end else self._empty
            for text, (start, end) in zip(texts, pairwise(borders), strict=True)
        ]

    def _complete(self, text: str, part: Tokens) -> _Encoded:
        return _Encoded(self._delimit(part), self._find_loss(text, part))

    def _delimit(self, part: Tokens) -> Tokens:
        if self._position is DelimiterPosition.BEFORE:
            return np.concatenate([self._delimiter, part])
        if self._position is DelimiterPosition.AFTER:
            return np.concatenate([part, self._delimiter])
        return part

    def _find_loss(self, text: str, part: Tokens) -> tuple[str, str] | None:
        if self._restore is not None:
            kept = self._restore(part.tolist())
        elif self._drop is not None:
            kept = self._drop(text).encode()
        else:
            return None
        return None if kept == text.encode() else show_loss(text, kept)


def _cannot_encode(uri: str, position: int, detail: str) -> SpecError:
    return SpecError(
        "TokenizerInvalid",
        f"{uri} @ {position:,}: the reference engine cannot encode this document: {detail}",
        next_step="nothing is known to be wrong, and nothing more can be proved here: verify with mode checksums, or "
        "where and with the versions that the run had",
    )


class _Counts:
    """What the source holds, against what the dataset says."""

    def __init__(self, task: FileTask, n_streams: int) -> None:
        self.claim = task.claim
        self.documents = [0] * n_streams
        self._read_bytes = self._refused_bytes = 0
        self.refused = 0
        self._listed = task.refused
        self._difference: tuple[Refusal | None, Refusal | None] | None = None

    def refuses(self, record: Record) -> bool:
        """Count the record's bytes; compare an unusable document with the next one that is listed."""
        self._read_bytes += record.size
        if record.text is not None:
            return False
        self._refused_bytes += record.size
        there = Refusal(record.position, record.number, str(record.reason))
        listed = self._listed[self.refused] if self.refused < len(self._listed) else None
        if self._difference is None and there != listed:
            self._difference = there, listed
        self.refused += 1
        return True

    def findings(self) -> Iterator[Finding]:
        claim = self.claim
        if tuple(self.documents) != claim.documents:
            expected, found = _counts(self.documents), _counts(claim.documents)
            what = f"{expected} usable documents"
            yield Finding(Fault.FILE_COUNTS, what, found, layout.FILES_TABLE, uri=claim.uri)
        if self.refused != claim.quarantined:
            what = f"{self.refused:,} unusable documents"
            found = f"{claim.quarantined:,}"
            yield Finding(Fault.FILE_COUNTS, what, found, layout.FILES_TABLE, uri=claim.uri)
        sizes, claimed = (self._read_bytes, self._refused_bytes), (claim.read_bytes, claim.quarantined_bytes)
        if None not in claimed and sizes != claimed:
            expected, found = (
                f"{size:,} bytes of documents, {bad:,} of them unusable" for size, bad in (sizes, claimed)
            )
            yield Finding(Fault.FILE_COUNTS, expected, found, layout.FILES_TABLE, uri=claim.uri)
        if self._difference is None and self.refused < len(self._listed):
            self._difference = None, self._listed[self.refused]
        if self._difference is not None:
            there, listed = self._difference
            place = (there or listed or (0,))[0]
            path = layout.QUARANTINE_TABLE
            yield Finding(Fault.QUARANTINE_DIFFERS, _refusal(there), _refusal(listed), path, None, claim.uri, place)


def _counts(documents: list[int] | tuple[int, ...]) -> str:
    return " + ".join(f"{count:,}" for count in documents)


def _refusal(item: Refusal | None) -> str:
    return "nothing" if item is None else f"{item[2]} at {item[0]:,} (record {item[1]:,})"


def _compare_all(facts: Facts, task: FileTask, tell: Tell) -> FileCheck:
    store = open_store(facts.uri)
    streams = range(len(facts.streams))
    comparers = [StreamComparer(Stream(store, facts, number), task.claim, number) for number in streams]
    counts = _Counts(task, len(comparers))
    batches, thresholds = _Batches(facts), facts.thresholds
    texts: list[list[tuple[int, str]]] = [[] for _ in comparers]
    size = 0
    findings: list[Finding] = []

    def compare() -> None:
        for comparer, waiting in zip(comparers, texts, strict=True):
            places = [position for position, _ in waiting]
            encoded = batches.encode(task.claim.uri, places, [text for _, text in waiting])
            comparer.add([Expected(place, *document) for place, document in zip(places, encoded, strict=True)])
            waiting.clear()

    try:
        for record in _records(facts, task.claim, tell):
            if counts.refuses(record) or record.text is None:
                continue
            stream = stream_of(record.text, thresholds)
            counts.documents[stream] += 1
            texts[stream].append((record.position, record.text))
            size += len(record.text) + _DOCUMENT_BYTES
            if size >= _BATCH_BYTES:
                compare()
                size = 0
    except Damaged as damage:
        findings.append(_outcome_finding(task.claim, f"{damage.outcome}: {damage.detail}"))
    else:
        compare()
        for comparer in comparers:
            comparer.finish()
        findings.extend(counts.findings())
    found = [finding for comparer in comparers for finding in comparer.findings]
    documents = sum(counts.documents)
    compared = sum(comparer.tokens_compared for comparer in comparers)
    return FileCheck((*found, *findings), documents, counts.refused, documents, compared)


class _Sample:
    """The sampled documents of one stream, with the places that sidecars give them."""

    def __init__(self, stream: Stream, claim: FileClaim, number: int) -> None:
        self._stream = stream
        self._claim = claim
        start = claim.starts[number]
        self._places = stream.documents(start, start + claim.tokens[number])
        self._waiting: list[tuple[int, str, int, int]] = []

    def place(self, position: int) -> tuple[int, int]:
        """The tokens of the next document, which stands at `position` in the file."""
        place = next(self._places, None)
        if place is None:
            raise _Suspicion
        start, end = place
        for shard in self._stream.shards_of(start, end):
            if start <= shard.start < end:
                sidecar = self._stream.sidecar(shard)
                recorded = (sidecar.first_file, sidecar.first_position, sidecar.skipped)
                if recorded != (self._claim.number, position, shard.start - start):
                    raise _Suspicion
        return place

    def choose(self, position: int, text: str, start: int, end: int) -> None:
        self._waiting.append((position, text, start, end))

    def compare(self, batches: _Batches) -> tuple[int, int]:
        """Encode the chosen documents; returns how many documents and tokens were equal."""
        tokens = 0
        positions = [position for position, *_ in self._waiting]
        encoded = batches.encode(self._claim.uri, positions, [text for _, text, *_ in self._waiting])
        for (*_, start, end), (expected, lost) in zip(self._waiting, encoded, strict=True):
            found = self._stream.tokens(start, end)
            if lost or len(found) != len(expected) or len(difference(expected, found)):
                raise _Suspicion
            tokens += len(expected)
        documents = len(self._waiting)
        self._waiting.clear()
        return documents, tokens

    def finish(self) -> None:
        """The sidecars know of no further document of this file."""
        if next(self._places, None) is not None:
            raise _Suspicion


def _compare_sample(facts: Facts, task: FileTask, tell: Tell) -> FileCheck:
    """Count all documents, compare the chosen ones; raises `_Suspicion` or `BadSidecar` if anything is odd."""
    store = open_store(facts.uri)
    streams = range(len(facts.streams))
    samples = [_Sample(Stream(store, facts, number), task.claim, number) for number in streams]
    counts = _Counts(task, len(samples))
    batches, thresholds = _Batches(facts), facts.thresholds
    compared = tokens_compared = size = 0

    def compare() -> None:
        nonlocal compared, tokens_compared
        for sample in samples:
            documents, tokens = sample.compare(batches)
            compared += documents
            tokens_compared += tokens

    try:
        for record in _records(facts, task.claim, tell):
            if counts.refuses(record) or record.text is None:
                continue
            stream = stream_of(record.text, thresholds)
            counts.documents[stream] += 1
            if not record.text and facts.delimiter_id is None:
                continue  # a document of no tokens is in no sidecar
            start, end = samples[stream].place(record.position)
            if is_chosen(task.claim.number, record.position, task.one_in):
                samples[stream].choose(record.position, record.text, start, end)
                size += len(record.text) + _DOCUMENT_BYTES
            if size >= _BATCH_BYTES:
                compare()
                size = 0
    except Damaged as damage:
        raise _Suspicion from damage
    compare()
    for sample in samples:
        sample.finish()
    if any(counts.findings()):
        raise _Suspicion
    return FileCheck((), sum(counts.documents), counts.refused, compared, tokens_compared)


def is_chosen(file: int, position: int, one_in: int) -> bool:
    """Whether a document is in the sample: by a hash of its place, and not the one that the run samples by."""
    number = int.from_bytes(blake2b(f"{file}:{position}".encode(), digest_size=8).digest(), "big")
    return number % one_in == 0
