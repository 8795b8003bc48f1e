"""Reads the heads of a few files, and refuses a source without usable documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tokenization_worker.api.data import TextSpec
from tokenization_worker.api.resolve import RunLimits
from tokenization_worker.errors import DataError, SpecError
from tokenization_worker.events import Warned, Watcher
from tokenization_worker.host.parallel import map_at_once
from tokenization_worker.messages.counts import counted
from tokenization_worker.planning.sampled_files import SAMPLE_BYTES, SAMPLED_BYTES, choose_samples
from tokenization_worker.planning.sampling import encoding_hint, read_on
from tokenization_worker.readers.document_batch import FileOutcome, ReadOptions, Reason
from tokenization_worker.readers.head import HeadSample, read_head
from tokenization_worker.readers.lines.text_fields import array_advice
from tokenization_worker.storage.base import ByteReader
from tokenization_worker.storage.source_file import SourceFile
from tokenization_worker.storage.sources import connections_to, open_file

_WRONG_FIELD = {"MissingText", "WrongTextType", "NotAnObject"}
_WRONG_FORMAT = _WRONG_FIELD | {"InvalidJson", "InvalidUtf8"}

_FEW_RECORDS = 3
"""Fewer unusable records than that say nothing about the rest of a source."""


def sample_heads(
    data: TextSpec, limits: RunLimits, files: tuple[SourceFile, ...], watch: Watcher
) -> list[tuple[SourceFile, HeadSample]]:
    """The heads of a few files, spread over the source; the first file's fields must be right."""
    options = ReadOptions.of(data)
    sampled = choose_samples(files)
    sample_bytes = max(SAMPLE_BYTES, SAMPLED_BYTES // max(1, len(sampled)))
    heads = map_at_once(
        lambda file: read_head(file.uri, file.size, options, sample_bytes, _opener(file)),
        sampled,
        connections_to(data.source.uris),
    )
    samples = []
    found = read_on(list(zip(sampled, heads, strict=True)), options, _opener, sample_bytes)
    for number, (file, head) in enumerate(found):
        problem = _problem(data, file, head)
        if problem is not None:
            if number == 0 and not limits.max_corrupt_files.allowed(len(files)):
                raise problem
            watch(Warned(f"{problem.reason}: {problem.message}"))
        samples.append((file, head))
    if both := next(((file, head) for file, head in samples if head.warning), None):
        watch(Warned(f"{both[0].uri}: {both[1].warning}"))
    _refuse_unusable(data, limits, samples, watch)
    return samples


def _refuse_unusable(
    data: TextSpec, limits: RunLimits, samples: list[tuple[SourceFile, HeadSample]], watch: Watcher
) -> None:
    """Raise where no sampled file has a usable document and lines are not JSON; warn where the job allows that."""
    heads = [(file, head) for file, head in samples if file.size]
    rejected = sum((head.rejected for _, head in heads), Counter[str]())
    is_array = any(head.is_array for _, head in heads)
    unknown = any(head.texts or head.damage or not (head.source_bytes or head.is_array) for _, head in heads)
    if unknown or not set(rejected) <= _WRONG_FORMAT or (rejected.total() < _FEW_RECORDS and not is_array):
        return
    file, head = next((file, head) for file, head in heads if head.rejected or head.is_array)
    found = f" ({', '.join(sorted(rejected))})" if rejected else ""
    hint = encoding_hint(heads)
    what = (
        "expected documents that are UTF-8 text, found none"
        if set(rejected) == {Reason.INVALID_UTF8}
        else f"expected lines that are JSON objects with a text at {data.source.text_field!r}, found none"
    )
    if head.is_array:
        next_step = array_advice(file.uri, head.compression)
    elif hint:
        next_step = f"{hint}; to continue anyway, raise maxQuarantined"
    elif head.field_advice:
        next_step = head.field_advice
    else:
        next_step = (
            "write one JSON object a line, or set source.format to what the files are; to continue anyway, raise "
            "maxQuarantined"
        )
    problem = SpecError(
        "SourceInvalid",
        f"{file.uri}: {what} in {counted(len(heads), 'sampled file')}{found}",
        next_step=next_step,
    )
    if limits.max_quarantined.allowed(rejected.total()) < max(1, rejected.total()):
        raise problem
    watch(Warned(f"{problem.reason}: {problem.message}"))


def _problem(data: TextSpec, file: SourceFile, head: HeadSample) -> SpecError | DataError | None:
    """What is wrong with the fields of `file`, if its first records say so."""
    if head.damage is not None and head.damage.outcome == FileOutcome.SCHEMA_MISMATCH:
        return DataError(
            FileOutcome.SCHEMA_MISMATCH.value,
            f"{file.uri}: {head.damage.detail}",
            next_step="set source.textField to a column that holds text, or raise maxCorruptFiles: the run then "
            "leaves such files out completely",
        )
    reasons = head.rejected.keys()
    if head.texts or not reasons or not reasons <= _WRONG_FIELD:
        return None
    if head.is_array:
        return SpecError(
            "SourceInvalid",
            f"{file.uri}: expected one JSON object a line, found a JSON array",
            next_step=array_advice(file.uri, head.compression),
        )
    found = ", ".join(map(repr, head.fields[:20])) or "none"
    return SpecError(
        "SourceInvalid",
        f"{file.uri}: none of its first {counted(head.rejected.total(), 'record')} has a text at "
        f"{data.source.text_field!r} ({', '.join(sorted(reasons))}); fields found: {found}",
        next_step=head.field_advice or "set source.textField to the field that holds the text",
    )


def warn_of_empty_texts(data: TextSpec, samples: list[tuple[SourceFile, HeadSample]], watch: Watcher) -> None:
    """Warn of a source whose sampled documents are all empty: another field may hold the text."""
    texts = [text for _, head in samples for text in head.texts]
    if not texts or any(texts):
        return
    file, head = next((file, head) for file, head in samples if head.texts)
    others = [field for field in head.fields if field != data.source.text_field][:10]
    fields = f"; other fields: {', '.join(others)}" if others else ""
    watch(
        Warned(
            f"{file.uri}: the text at {data.source.text_field!r} is empty in all "
            f"{counted(len(texts), 'sampled document')}{fields}; source.textField names the field that holds the text"
        )
    )


def is_corrupt(data: TextSpec, file: SourceFile) -> bool:
    """Whether the file's head is corrupt when it is read again, too, and as far as it may have been read."""
    options = ReadOptions.of(data)
    head = read_head(file.uri, file.size, options, SAMPLED_BYTES, _opener(file), most_bytes=options.max_document_bytes)
    return head.damage is not None


def _opener(file: SourceFile) -> Callable[[str], ByteReader]:
    return lambda _: open_file(file)
