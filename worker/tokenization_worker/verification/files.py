"""One source file, read again: its documents counted, and some or all of them compared with the shards.

A sampled file in which anything is wrong is compared whole, so that a finding names the very place. Raises
`ChangedError` if the file is not the one that the dataset was made from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from tokenization_worker import layout
from tokenization_worker.api.data import DelimiterPosition
from tokenization_worker.errors import ChangedError
from tokenization_worker.storage.base import ByteReader, NotFound
from tokenization_worker.storage.open import open_store
from tokenization_worker.storage.source_file import Changed
from tokenization_worker.storage.sources import open_unchanged
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.verification.compare import Expected, StreamComparer
from tokenization_worker.verification.facts import Facts, FileClaim, Refused, stream_of
from tokenization_worker.verification.report import Fault, Finding
from tokenization_worker.verification.source import Damaged, Record, read_records, refuse_poison
from tokenization_worker.verification.stream import BadSidecar, Stream, Tokens

_BATCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FileTask:
    """A file to check. `refused`: its rows of the quarantine table. `one_in`: 1 compares every document."""

    claim: FileClaim
    refused: tuple[Refused, ...]
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


def check_files(facts: Facts, tasks: tuple[FileTask, ...]) -> list[FileCheck]:
    """Several files, one after the other."""
    return [check_file(facts, task) for task in tasks]


def check_file(facts: Facts, task: FileTask) -> FileCheck:
    """Read the file and compare it with what the dataset holds of it."""
    if not task.claim.is_read:
        check = _check_dropped(facts, task.claim)
    elif task.one_in == 1:
        check = _compare_all(facts, task)
    else:
        try:
            check = _compare_sample(facts, task)
        except (_Suspicion, BadSidecar):
            check = _compare_all(facts, task)
    if check.findings:
        _open(task.claim).close()  # a file that was changed meanwhile is no fault of the dataset
    return check


def _open(claim: FileClaim) -> ByteReader:
    was = f"{claim.size:,} bytes, {claim.version}"
    try:
        return open_unchanged(claim.uri, claim.size, claim.version, claim.pin)
    except NotFound as error:
        now = "it is gone"
        cause: Exception = error
    except Changed as error:
        now = f"is {error.now.size:,} bytes, {error.now.version}"
        cause = error
    raise ChangedError(
        "SourceChanged",
        f"{claim.uri} is not the file that this dataset was made from: was {was}; {now}",
        next_step="put that file back, or verify with mode checksums, which needs no source",
    ) from cause


def _records(facts: Facts, claim: FileClaim) -> Iterator[Record]:
    stream = _open(claim)
    poison = facts.poison.get(claim.uri, {})
    try:
        for record in read_records(stream, claim.uri, facts.rules):
            yield refuse_poison(record, poison)
    finally:
        stream.close()


def _check_dropped(facts: Facts, claim: FileClaim) -> FileCheck:
    """The file is as damaged as the dataset says; that nothing of it was written follows from the sums."""
    found = "Read"
    detail = ""
    try:
        for _ in _records(facts, claim):
            pass
    except Damaged as damage:
        found, detail = damage.outcome, damage.detail
    if found == claim.outcome:
        return FileCheck((), 0, 0, 0, 0)
    finding = _outcome_finding(claim, f"{found}: {detail}" if detail else found)
    return FileCheck((finding,), 0, 0, 0, 0)


def _outcome_finding(claim: FileClaim, expected: str) -> Finding:
    return Finding(Fault.FILE_OUTCOME, expected, claim.outcome, layout.FILES_TABLE, uri=claim.uri)


class _Batches:
    """Encodes documents with the reference engine, some at a time."""

    def __init__(self, facts: Facts) -> None:
        self._engine = load_tokenizer(facts.tokenizer).reference
        self._delimiter = np.array([] if facts.delimiter_id is None else [facts.delimiter_id], dtype=np.int64)
        self._position = facts.delimiter_position

    def encode(self, texts: list[str]) -> list[Tokens]:
        """Each text's tokens with its delimiter."""
        ids, ends = self._engine.encode(texts)
        parts = np.split(ids.astype(np.int64), ends[:-1]) if texts else []
        if self._position is DelimiterPosition.BEFORE:
            return [np.concatenate([self._delimiter, part]) for part in parts]
        if self._position is DelimiterPosition.AFTER:
            return [np.concatenate([part, self._delimiter]) for part in parts]
        return parts


class _Counts:
    """What the source holds, against what the dataset says."""

    def __init__(self, task: FileTask, n_streams: int) -> None:
        self.claim = task.claim
        self.documents = [0] * n_streams
        self.refused: list[Refused] = []
        self._listed = task.refused

    def findings(self) -> Iterator[Finding]:
        claim = self.claim
        if tuple(self.documents) != claim.documents:
            expected, found = _counts(self.documents), _counts(claim.documents)
            what = f"{expected} usable documents"
            yield Finding(Fault.FILE_COUNTS, what, found, layout.FILES_TABLE, uri=claim.uri)
        if len(self.refused) != claim.quarantined:
            what = f"{len(self.refused):,} unusable documents"
            found = f"{claim.quarantined:,}"
            yield Finding(Fault.FILE_COUNTS, what, found, layout.FILES_TABLE, uri=claim.uri)
        path = layout.QUARANTINE_TABLE
        for number in range(max(len(self.refused), len(self._listed))):
            there = self.refused[number] if number < len(self.refused) else None
            listed = self._listed[number] if number < len(self._listed) else None
            if there != listed:
                place = (there or listed or (0,))[0]
                yield Finding(Fault.QUARANTINE_DIFFERS, _refusal(there), _refusal(listed), path, None, claim.uri, place)
                return


def _counts(documents: list[int] | tuple[int, ...]) -> str:
    return " + ".join(f"{count:,}" for count in documents)


def _refusal(item: Refused | None) -> str:
    return "nothing" if item is None else f"{item[2]} at {item[0]:,} (record {item[1]:,})"


def _compare_all(facts: Facts, task: FileTask) -> FileCheck:
    store = open_store(facts.uri)
    streams = range(len(facts.streams))
    comparers = [StreamComparer(Stream(store, facts, number), task.claim, number) for number in streams]
    counts = _Counts(task, len(comparers))
    batches = _Batches(facts)
    texts: list[list[tuple[int, str]]] = [[] for _ in comparers]
    size = 0
    findings: list[Finding] = []

    def compare() -> None:
        for comparer, waiting in zip(comparers, texts, strict=True):
            tokens = batches.encode([text for _, text in waiting])
            places = [position for position, _ in waiting]
            comparer.add([Expected(place, ids) for place, ids in zip(places, tokens, strict=True)])
            waiting.clear()

    try:
        for record in _records(facts, task.claim):
            if record.text is None:
                counts.refused.append((record.position, record.number, str(record.reason)))
                continue
            stream = stream_of(record.text, facts.thresholds)
            counts.documents[stream] += 1
            texts[stream].append((record.position, record.text))
            size += len(record.text)
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
    return FileCheck((*found, *findings), documents, len(counts.refused), documents, compared)


class _Sample:
    """The sampled documents of one stream, with the places that sidecars give them."""

    def __init__(self, stream: Stream, claim: FileClaim, number: int) -> None:
        self._stream = stream
        self._claim = claim
        start = claim.starts[number]
        self._places = stream.documents(start, start + claim.tokens[number])
        self._waiting: list[tuple[str, int, int]] = []

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

    def choose(self, text: str, start: int, end: int) -> None:
        self._waiting.append((text, start, end))

    def compare(self, batches: _Batches) -> tuple[int, int]:
        """Encode the chosen documents; returns how many documents and tokens were equal."""
        tokens = 0
        for (_, start, end), expected in zip(
            self._waiting, batches.encode([text for text, _, _ in self._waiting]), strict=True
        ):
            if not np.array_equal(expected, self._stream.tokens(start, end)):
                raise _Suspicion
            tokens += len(expected)
        documents = len(self._waiting)
        self._waiting.clear()
        return documents, tokens

    def finish(self) -> None:
        """The sidecars know of no further document of this file."""
        if next(self._places, None) is not None:
            raise _Suspicion


def _compare_sample(facts: Facts, task: FileTask) -> FileCheck:
    """Count all documents, compare the chosen ones; raises `_Suspicion` or `BadSidecar` if anything is odd."""
    store = open_store(facts.uri)
    streams = range(len(facts.streams))
    samples = [_Sample(Stream(store, facts, number), task.claim, number) for number in streams]
    counts = _Counts(task, len(samples))
    batches = _Batches(facts)
    compared = tokens_compared = size = 0

    def compare() -> None:
        nonlocal compared, tokens_compared
        for sample in samples:
            documents, tokens = sample.compare(batches)
            compared += documents
            tokens_compared += tokens

    try:
        for record in _records(facts, task.claim):
            if record.text is None:
                counts.refused.append((record.position, record.number, str(record.reason)))
                continue
            stream = stream_of(record.text, facts.thresholds)
            counts.documents[stream] += 1
            if not record.text and facts.delimiter_id is None:
                continue  # a document of no tokens is in no sidecar
            start, end = samples[stream].place(record.position)
            if is_chosen(task.claim.number, record.position, task.one_in):
                samples[stream].choose(record.text, start, end)
                size += len(record.text)
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
    return FileCheck((), sum(counts.documents), len(counts.refused), compared, tokens_compared)


def is_chosen(file: int, position: int, one_in: int) -> bool:
    """Whether a document is in the sample: by a hash of its place, and not the one that the run samples by."""
    number = int.from_bytes(blake2b(f"{file}:{position}".encode(), digest_size=8).digest(), "big")
    return number % one_in == 0
