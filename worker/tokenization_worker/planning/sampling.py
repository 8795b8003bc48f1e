"""Decides from the heads of a few files where to read on, and how the run would end.

`prepare` reads the heads; here they are read further where they hold no text, and their unusable records are held
against the job's limits. What is certain is an error, which `plan` raises; what is only likely is a warning with
numbers. Certain is what no record behind the heads can change: a count that is exceeded already, a source that was
read whole, files that cannot be decoded.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tokenization_worker.api.resolve import RunLimits
from tokenization_worker.api.types.quantities import Limit
from tokenization_worker.errors import DataError, TokenizationError
from tokenization_worker.messages.counts import counted
from tokenization_worker.planning.limits import (
    DocumentCounts,
    QuarantineExceeded,
    excess,
    list_reasons,
    percent,
    too_many_corrupt,
)
from tokenization_worker.readers.detection.detect import conversion_command
from tokenization_worker.readers.detection.encodings import guess_encoding, is_binary
from tokenization_worker.readers.document_batch import CorruptFileError, FileOutcome, ReadOptions, Reason
from tokenization_worker.readers.head import HeadSample, read_head
from tokenization_worker.storage.base import ByteReader
from tokenization_worker.storage.source_file import SourceFile

_MOST_VALID = 0.01
"""Of lines beyond ASCII: `iconv` makes nonsense of those that are UTF-8 already. Of short lines in another encoding,
some are valid by chance."""

_WIDE = ("UTF-16LE", "UTF-16BE")
"""Of their lines, split at a byte, many are valid."""

Samples = list[tuple[SourceFile, HeadSample]]
Opener = Callable[[SourceFile], Callable[[str], ByteReader]]

DOUBT_BYTES = 1 << 20
"""Of each file whose head has only unusable records: bad lines may come first, and good ones after them."""

_CHANCE = 0.01
"""A warning needs a share of unusable records that a source within its limit would show less often than this."""


def read_on(samples: Samples, options: ReadOptions, opener: Opener, sample_bytes: int) -> Samples:
    """The same samples; where none of them has a text, read further.

    Heads of unusable records: up to `DOUBT_BYTES` each. Heads without a whole record: the smallest file first, until
    one has a text, and `documents.maxBytes` in all.
    """
    if any(head.texts for _, head in samples):
        return samples
    deeper = list(samples)
    room = options.max_document_bytes
    found = False
    for number in sorted(range(len(samples)), key=lambda number: samples[number][0].size):
        file, head = samples[number]
        if not file.size or head.damage or head.is_whole or (head.is_array and not head.source_bytes):
            continue
        if head.source_bytes:
            head = read_head(file.uri, file.size, options, DOUBT_BYTES, opener(file))
        elif not found and room > 0:
            head = read_head(file.uri, file.size, options, sample_bytes, opener(file), most_bytes=room)
            room -= head.content_bytes
        deeper[number] = file, head
        found = found or bool(head.texts)
    return deeper


@dataclass(frozen=True, slots=True)
class Foresight:
    """How a run would end: `error` is certain, `warnings` are likely."""

    error: TokenizationError | None = None
    warnings: tuple[str, ...] = ()


def foresee(samples: Samples, n_files: int, limits: RunLimits, is_corrupt: Callable[[SourceFile], bool]) -> Foresight:
    """Hold the samples against the limits; `is_corrupt` reads a head again: what came corrupt may lie there whole."""
    corrupt = [(file, head.damage) for file, head in samples if head.damage is not None and is_corrupt(file)]
    if len(corrupt) > limits.max_corrupt_files.allowed(n_files):
        file, damage = corrupt[0]
        error = too_many_corrupt(damage.outcome, _place(file, damage), len(corrupt), n_files, limits.max_corrupt_files)
        return Foresight(error)
    warnings = [
        f"{damage.outcome}: {_place(file, damage)}; the run leaves this file out, as maxCorruptFiles allows"
        for file, damage in corrupt
        if damage.outcome != FileOutcome.SCHEMA_MISMATCH  # told with the fields that were found
    ]
    known = {file.uri for file, _ in corrupt}
    is_all = len(samples) == n_files and all(head.is_whole or file.uri in known for file, head in samples)
    unusable = _judge(samples, n_files, limits, is_all=is_all)
    return Foresight(unusable.error, (*warnings, *unusable.warnings))


def _place(file: SourceFile, damage: CorruptFileError) -> str:
    near = "" if damage.offset is None else f", near stored byte {damage.offset:,}"
    return f"{file.uri}: {damage.detail}{near}"


def _judge(samples: Samples, n_files: int, limits: RunLimits, *, is_all: bool) -> Foresight:
    """Whether the unusable records of the samples exceed `maxQuarantined`, or make that likely.

    `is_all`: the samples are the whole source.
    """
    heads = [(file, head) for file, head in samples if head.damage is None]
    counts = _count(heads)
    if is_all and not counts.read and heads:
        return Foresight(
            DataError(
                "NoDocuments",
                f"the source has no document: {counted(n_files, 'file')} read to the end",
                next_step="check source.uris and source.textField",
            )
        )
    if not counts.quarantined:
        return Foresight()
    limit = limits.max_quarantined
    first = next((file, head.unusable[0]) for file, head in heads if head.unusable)
    example = f"the first: {first[0].uri} record {first[1].record + 1:,}, {first[1].reason}: {first[1].detail}"
    words = excess(counts, limit)
    if is_all and words is not None:
        return Foresight(_refusal(f"{words}; {example}", heads))
    seen = f"the beginnings of {len(heads):,} of {counted(n_files, 'file')}"
    share = percent(counts.quarantined, counts.read)
    reasons = list_reasons(counts.reasons)
    are = "is" if counts.quarantined == 1 else "are"
    found = f"{counts.quarantined:,} of {counted(counts.read, 'document')} in {seen} {are} unusable ({reasons})"
    most = 0 if limit.share == 0 else limit.count  # whatever the rest of the source is
    if most is not None and counts.quarantined > most:
        message = f"{found}; maxQuarantined allows {most:,}; {example}"
        if not limits.max_corrupt_files.allowed(n_files):
            return Foresight(_refusal(message, heads))
        return Foresight(warnings=(f"QuarantineExceeded is likely: {message}{_hint(heads)}",))
    if limit.share is not None and not is_all and is_clearly_above(counts, limit, _scale(heads, n_files)):
        allowed = f"{float(limit.share * 100):g} %"
        held = f", with {counts.share_of_bytes} of the bytes" if counts.share_of_bytes else ""
        return Foresight(
            warnings=(
                f"QuarantineExceeded is likely: {found}, {share}{held}; maxQuarantined allows {allowed}; "
                f"{example}{_hint(heads)}",
            )
        )
    return Foresight()


def _count(heads: Samples) -> DocumentCounts:
    reasons = sum((head.rejected for _, head in heads), Counter[str]())
    return DocumentCounts(
        read=sum(len(head.texts) for _, head in heads) + reasons.total(),
        reasons=reasons,
        read_bytes=sum(head.document_bytes for _, head in heads),
        quarantined_bytes=sum(head.rejected_bytes for _, head in heads),
    )


def _scale(heads: Samples, n_files: int) -> float:
    """About how many times the documents of these heads the source has, in bytes; at least 1."""
    sampled = sum(head.taken_bytes for _, head in heads)
    stored = sum(file.size for file, _ in heads) * n_files / max(1, len(heads))
    return max(1.0, stored / sampled) if sampled else math.inf


def is_clearly_above(counts: DocumentCounts, limit: Limit, scale: float) -> bool:
    """Whether a source within its percentage would show so many unusable documents in less than `_CHANCE` of samples.

    Or the sample alone has twice what is allowed in a source of `scale` times its size, in documents or bytes.
    Documents are taken for independent (Poisson): what is wrong in one place only gives a warning too many.
    """
    share = float(limit.share or 0)
    for part, whole in ((counts.quarantined, counts.read), (counts.quarantined_bytes or 0, counts.read_bytes or 0)):
        if part > 2 * share * whole * scale:
            return True
    expected = share * counts.read
    if counts.quarantined <= expected or not expected:
        return False
    terms = (n * math.log(expected) - expected - math.lgamma(n + 1) for n in range(counts.quarantined))
    return 1 - sum(map(math.exp, terms)) < _CHANCE


def _refusal(message: str, heads: Samples) -> QuarantineExceeded:
    return QuarantineExceeded(
        "QuarantineExceeded",
        message,
        next_step="correct the source, or raise maxQuarantined: unusable documents are then left out and "
        f"listed{_hint(heads)}",
    )


def _hint(heads: Samples) -> str:
    """What to do about unusable records, behind a sentence; nothing where that is not known."""
    words = advice(heads)
    return f"; {words}" if words else ""


def advice(heads: Samples) -> str:
    """What is wrong with unusable records, and how to convert their file; "" where that is not known."""
    return encoding_hint(heads) or next((head.field_advice for _, head in heads if head.field_advice), "")


def encoding_hint(heads: Sequence[tuple[SourceFile, HeadSample]]) -> str:
    """What to do with the first file whose unusable records are not UTF-8; "" where there is none."""
    wrong = {Reason.INVALID_UTF8, Reason.INVALID_JSON}
    for file, head in heads:
        if head.not_utf8 and head.rejected.keys() & wrong:
            guess = guess_encoding(head.not_utf8)
            if guess is None and is_binary(head.not_utf8):
                return ""
            valid, invalid = head.encoded_lines
            if valid > _MOST_VALID * (valid + invalid) and guess not in _WIDE:
                are = "is" if invalid == 1 else "are"
                return (
                    f"{invalid:,} of {counted(valid + invalid, 'non-ASCII line')} at the beginning of {file.uri} {are} "
                    "not UTF-8, and the others are UTF-8: do not convert the whole file; after a run `tokjob show "
                    "--quarantined` lists the documents: correct them, or leave them out with maxQuarantined"
                )
            if guess is None:
                command = conversion_command(file.uri, "ENCODING", head.compression)
                return f"{file.uri} is not UTF-8; find out its encoding and convert it: {command}"
            command = conversion_command(file.uri, guess, head.compression)
            return f"{file.uri} is not UTF-8 and looks like {guess} (a guess: check the result); convert it: {command}"
    return ""
