"""Checks a source file by a sample: counts all documents, and compares the chosen ones."""

from __future__ import annotations

from hashlib import blake2b

from tokenization_worker.storage.open import open_store
from tokenization_worker.verification.advance import OnAdvance
from tokenization_worker.verification.claims import FileClaim
from tokenization_worker.verification.decoders.record import CorruptSource
from tokenization_worker.verification.facts import Facts
from tokenization_worker.verification.files.claimed import FileCheck, FileTask, claimed_records
from tokenization_worker.verification.files.counts import Counts
from tokenization_worker.verification.files.encode import BATCH_BYTES, DOCUMENT_BYTES, Encoder
from tokenization_worker.verification.stream import Stream, difference


class Suspicion(Exception):
    """The sample does not fit: every document has to be looked at."""


class Sample:
    """The sampled documents of one stream, with the places that sidecars or parts give them."""

    def __init__(self, stream: Stream, claim: FileClaim, number: int) -> None:
        self._stream = stream
        self._claim = claim
        start = claim.starts[number]
        self._places = stream.documents(start, start + claim.tokens[number])
        self._waiting: list[tuple[int, str, int, int]] = []

    def place(self, position: int) -> tuple[int, int]:
        """The tokens of the next document, which stands at `position` in the file."""
        document = next(self._places, None)
        if document is None:
            raise Suspicion
        start, end, source = document
        if source is not None:
            if source != (self._claim.number, position):
                raise Suspicion
            return start, end
        for shard in self._stream.shards_of(start, end):
            if start <= shard.start < end:
                recorded = self._stream.documents_of(shard).first()
                if recorded != (self._claim.number, position, shard.start - start):
                    raise Suspicion
        return start, end

    def choose(self, position: int, text: str, start: int, end: int) -> None:
        self._waiting.append((position, text, start, end))

    def compare(self, encoder: Encoder) -> tuple[int, int]:
        """Encode the chosen documents; returns how many documents and tokens were equal."""
        tokens = 0
        positions = [position for position, *_ in self._waiting]
        encoded = encoder.encode(self._claim.uri, positions, [text for _, text, *_ in self._waiting])
        for (*_, start, end), (expected, lost, _) in zip(self._waiting, encoded, strict=True):
            found = self._stream.tokens(start, end)
            if lost or len(found) != len(expected) or len(difference(expected, found)):
                raise Suspicion
            tokens += len(expected)
        documents = len(self._waiting)
        self._waiting.clear()
        return documents, tokens

    def finish(self) -> None:
        """The sidecars or parts know of no further document of this file."""
        if next(self._places, None) is not None:
            raise Suspicion


def compare_sample(facts: Facts, task: FileTask, on_advance: OnAdvance) -> FileCheck:
    """Count all documents, compare the chosen ones; raises `Suspicion` or `NoDocuments` if anything is odd."""
    store = open_store(facts.uri)
    streams = range(facts.streams_of_files)
    samples = [Sample(Stream(store, facts, task.claim.first_stream + number), task.claim, number) for number in streams]
    counts = Counts(task, facts)
    encoder = Encoder(facts)
    compared = tokens_compared = size = 0

    def compare() -> None:
        nonlocal compared, tokens_compared
        for sample in samples:
            documents, tokens = sample.compare(encoder)
            compared += documents
            tokens_compared += tokens

    try:
        for record in claimed_records(facts, task.claim, on_advance):
            stream = counts.add(record)
            if stream is None or record.text is None:
                continue
            if not record.text and not facts.delimiter_ids:
                continue  # a document of no tokens has no place in it
            start, end = samples[stream].place(record.position)
            if is_chosen(task.claim.number, record.position, task.one_in):
                samples[stream].choose(record.position, record.text, start, end)
                size += len(record.text) + DOCUMENT_BYTES
            if size >= BATCH_BYTES:
                compare()
                size = 0
    except CorruptSource as damage:
        raise Suspicion from damage
    compare()
    for sample in samples:
        sample.finish()
    if any(counts.findings()):
        raise Suspicion
    return FileCheck((), counts.documents, counts.refused, compared, tokens_compared)


def is_chosen(file: int, position: int, one_in: int) -> bool:
    """Whether a document is in the sample: by a hash of its place, and not the one that the run samples by."""
    number = int.from_bytes(blake2b(f"{file}:{position}".encode(), digest_size=8).digest(), "big")
    return number % one_in == 0
