"""Compares the counts of a source file with the dataset's claims: usable and unusable documents, and bytes."""

from __future__ import annotations

from collections.abc import Iterator

from tokenization_worker.output import layout
from tokenization_worker.verification.assignment import is_left_out, stream_of
from tokenization_worker.verification.decoders.record import Record
from tokenization_worker.verification.facts import Facts
from tokenization_worker.verification.files.claimed import FileTask
from tokenization_worker.verification.refused import Refusal
from tokenization_worker.verification.report import Fault, Finding


class Counts:
    """What the source holds, against what the dataset says."""

    def __init__(self, task: FileTask, facts: Facts) -> None:
        self.claim = task.claim
        self._documents = [0] * facts.streams_of_files
        self._thresholds = facts.thresholds
        self._hash_end = facts.hash_ends.get(task.claim.group)
        self._left_out = 0
        self._read_bytes = self._refused_bytes = 0
        self.refused = 0
        self._listed = task.refused
        self._difference: tuple[Refusal | None, Refusal | None] | None = None

    def add(self, record: Record) -> int | None:
        """Count a record. Returns the stream of its document; None for one that the share of its group leaves out, and
        for an unusable one, after comparing it with the next one that is listed.
        """
        self._read_bytes += record.size
        if record.text is not None:
            if self._hash_end is not None and is_left_out(record.text, self._hash_end):
                self._left_out += 1
                return None
            stream = stream_of(record.text, self._thresholds)
            self._documents[stream] += 1
            return stream
        self._refused_bytes += record.size
        there = Refusal(record.position, record.number, str(record.reason))
        listed = self._listed[self.refused] if self.refused < len(self._listed) else None
        if self._difference is None and there != listed:
            self._difference = there, listed
        self.refused += 1
        return None

    @property
    def documents(self) -> int:
        """Usable documents of all streams, without those that the share of the group leaves out."""
        return sum(self._documents)

    def findings(self) -> Iterator[Finding]:
        claim = self.claim
        if tuple(self._documents) != claim.documents:
            expected, found = _counts(self._documents), _counts(claim.documents)
            what = f"{expected} usable documents"
            yield Finding(Fault.FILE_COUNTS, what, found, layout.FILES_TABLE, uri=claim.uri)
        if self._left_out != claim.left_out:
            what = f"{self._left_out:,} documents that the share of group {claim.group} leaves out"
            yield Finding(Fault.FILE_COUNTS, what, f"{claim.left_out:,}", layout.FILES_TABLE, uri=claim.uri)
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
