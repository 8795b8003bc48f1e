"""What a source file holds, counted, against what the dataset says of it: usable and unusable documents, and bytes."""

from __future__ import annotations

from collections.abc import Iterator

from tokenization_worker.output import layout
from tokenization_worker.verification.decoders.record import Record
from tokenization_worker.verification.files.claimed import FileTask
from tokenization_worker.verification.refused import Refusal
from tokenization_worker.verification.report import Fault, Finding


class Counts:
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
