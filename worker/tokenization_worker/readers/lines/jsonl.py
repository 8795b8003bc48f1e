"""JSON lines to documents. orjson decides what is JSON: the parser is part of the format.

Only LF ends a line; a line of spaces, tabs and CR is no document but counts for line numbers. A line is
parsed from a view of the block, without a copy, and looked at a second time only if it is not a usable
document (then `_judge` says why). Compression, slices and lines too long to hold are left to
`decompress` and `record_splitter`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import orjson

from tokenization_worker.readers.batches import BATCH_BYTES, BatchBuilder, too_large, wrong_byte
from tokenization_worker.readers.document_batch import DocumentBatch, Reason
from tokenization_worker.readers.field_path import flat_name, has_nested
from tokenization_worker.readers.lines.blank_lines import skip_blank_lines
from tokenization_worker.readers.lines.oversized_lines import GIANT_LINE_BYTES, smallest_text_bytes
from tokenization_worker.readers.lines.record_splitter import Oversized, Run, rest_of

SEPARATOR = b"\n"

_SHORT_LINE_BYTES = 1500
"""Runs of lines shorter than this on average are split at once: at 100 bytes a line that is twice as fast, at
2000 bytes slower than parsing from views, which saves a copy (2026-11)."""

_PART = 1 << 20
_BLANK = re.compile(rb"[ \t\r]*")
_REFUSALS = (orjson.JSONDecodeError, KeyError, TypeError)


class Refusal(NamedTuple):
    """Why a record is not a document."""

    reason: Reason
    detail: str


def max_line_bytes(max_document_bytes: int) -> int:
    """The longest line that is parsed: a byte of text takes at most 6 bytes of JSON (a control character)."""
    return 6 * max_document_bytes + (64 << 10)


def read_jsonl(runs: Iterator[Run | Oversized], text_field: str, max_document_bytes: int) -> Iterator[DocumentBatch]:
    """Documents of whole lines in batches; `field_path` says what a dot in `text_field` means."""
    path = tuple(text_field.split("."))
    batch = BatchBuilder(has_lines=True)
    for run in runs:
        if run.source_bytes > BATCH_BYTES and not batch.is_empty:
            yield batch.take()
        if isinstance(run, Oversized):
            detail = _line_too_large(run.size, max_document_bytes)
            batch.reject(run.offset, batch.records, Reason.DOCUMENT_TOO_LARGE, detail, run.head, run.source_bytes)
            batch.records += 1
        else:
            rest = _skip_blank(run, max_document_bytes, batch)
            if rest is not None and _has_short_lines(rest) and _parse_short(rest, path, max_document_bytes, batch):
                rest = None
            while rest is not None and (rest := _parse(rest, path, max_document_bytes, batch)) is not None:
                batch.source_bytes += run.source_bytes - rest.source_bytes
                yield batch.take()
                run = rest
        batch.source_bytes += run.source_bytes
        if batch.is_full:
            yield batch.take()
    if not batch.is_empty:
        yield batch.take()


def _skip_blank(run: Run, max_document_bytes: int, batch: BatchBuilder) -> Run | None:
    """Count the blank lines that a run begins with; returns what is behind them."""
    begin, lines = skip_blank_lines(run.data, run.begin, run.end, max_line_bytes(max_document_bytes))
    batch.records += lines
    if begin > run.begin or begin == run.end:
        mark_bytes = run.begin if run.offset == 0 else 0  # of a byte order mark, which belongs to the first line
        batch.other_bytes += begin - run.begin + mark_bytes
    return rest_of(run, begin, run.offset + begin - run.begin)


def _has_short_lines(run: Run) -> bool:
    """Judged by the run's beginning: counting in all of it would cost as much as reading it."""
    looked_at = min(4096, run.end - run.begin)
    lines = run.data.count(SEPARATOR, run.begin, run.begin + looked_at)
    return lines * _SHORT_LINE_BYTES > looked_at


def _parse_short(run: Run, path: tuple[str, ...], max_document_bytes: int, batch: BatchBuilder) -> bool:
    """Add all lines of a run if every one of them is a document; otherwise change nothing."""
    lines = run.data[run.begin : run.end].split(SEPARATOR)
    if not lines[-1]:
        lines.pop()
    loads = orjson.loads
    first = path[0]
    try:
        texts = [loads(line)[first] for line in lines]
        for name in path[1:]:
            texts = [text[name] for text in texts]
    except _REFUSALS:
        return False
    if set(map(type, texts)) != {str}:
        return False
    sizes = np.fromiter(map(len, lines), dtype=np.int64, count=len(lines))  # of documents: blank lines end before this
    if sizes.max() > max_document_bytes:
        return False
    batch.texts += texts
    sizes += len(SEPARATOR)
    batch.positions.append(run.offset + np.cumsum(sizes) - sizes)
    batch.records += len(lines)
    return True


def _parse(run: Run, path: tuple[str, ...], max_document_bytes: int, batch: BatchBuilder) -> Run | None:
    """Add the lines of a run, whatever they are; returns the rest of it if the batch has as many records as it may."""
    first, rest = path[0], path[1:]
    data, end = run.data, run.end
    view, find, loads = memoryview(data), data.find, orjson.loads
    positions: list[int] = []
    add_text, add_position = batch.texts.append, positions.append
    parsed_bytes = max_line_bytes(max_document_bytes)
    mark_bytes = run.begin if run.offset == 0 else 0  # of a byte order mark, which belongs to the first line
    records = batch.records
    begin = run.begin
    position = run.offset
    while begin < end and not batch.has_many_records:
        stop = find(SEPARATOR, begin, end)
        if stop < 0:
            stop = end
        size = stop - begin
        text = too_large_by = None
        if GIANT_LINE_BYTES < size <= parsed_bytes:
            too_large_by = smallest_text_bytes(data, begin, stop, path, max_document_bytes)
        if 0 < size <= parsed_bytes and too_large_by is None:
            try:
                text = loads(view[begin:stop])[first]
                for name in rest:
                    text = text[name]
            except orjson.JSONDecodeError as error:
                text = error.with_traceback(None)  # or it would hold this call and the run
            except (KeyError, TypeError):
                text = _flat_text(view[begin:stop], path) if rest else None
        if type(text) is str and (size <= max_document_bytes or _fits(text, max_document_bytes)):
            add_text(text)
            add_position(position)
        else:
            line = view[begin:stop]
            if too_large_by is None:
                refusal = _judge(line, text, path, max_document_bytes)
            else:
                detail = too_large(too_large_by, max_document_bytes, "at least ")
                refusal = Refusal(Reason.DOCUMENT_TOO_LARGE, detail)
            if refusal is None:  # a blank line, and more of them may follow
                after, skipped = skip_blank_lines(data, min(stop + 1, end), end, parsed_bytes)
                records += skipped
                batch.other_bytes += after - begin + mark_bytes
                stop = after - 1
            else:
                line_bytes = min(stop + 1, end) - begin + mark_bytes
                batch.reject(position, records, refusal.reason, refusal.detail, line, line_bytes)
        records += 1
        begin = stop + 1
        position = run.offset + begin - run.begin
    batch.records = records
    batch.positions.append(np.array(positions, dtype=np.int64))
    return rest_of(run, begin, position)


def _flat_text(line: memoryview, path: tuple[str, ...]) -> object:
    """The value of the field whose name is the whole path, in a line without the nested one; None: it has neither."""
    record = orjson.loads(line)
    return record.get(flat_name(path)) if isinstance(record, dict) else None


def _fits(text: str, max_document_bytes: int) -> bool:
    return len(text) <= max_document_bytes and _utf8_size(text) <= max_document_bytes


def _utf8_size(text: str) -> int:
    """Never holds the encoded text whole."""
    if text.isascii():
        return len(text)
    return sum(len(text[begin : begin + _PART].encode()) for begin in range(0, len(text), _PART))


def _line_too_large(size: int, max_document_bytes: int) -> str:
    return (
        f"the line has {size} bytes, more than 6 times documents.maxBytes ({max_document_bytes}) and 64 KiB: "
        "it was not parsed"
    )


def _not_utf8(line: memoryview) -> str:
    """Which byte is no UTF-8; nothing where all are."""
    try:
        str(line, "utf-8")
    except UnicodeDecodeError as error:
        return f"{wrong_byte(error, 'line')} is not UTF-8"
    return ""


def _judge(line: memoryview, text: object, path: tuple[str, ...], max_document_bytes: int) -> Refusal | None:
    """Why a line is not a usable document; None for a blank line. `text` is what the fast path found, or its error."""
    if line.nbytes > max_line_bytes(max_document_bytes):
        return Refusal(Reason.DOCUMENT_TOO_LARGE, _line_too_large(line.nbytes, max_document_bytes))
    if isinstance(text, str):
        return Refusal(Reason.DOCUMENT_TOO_LARGE, too_large(_utf8_size(text), max_document_bytes))
    if _BLANK.fullmatch(line):
        return None
    if isinstance(text, orjson.JSONDecodeError):
        return Refusal(Reason.INVALID_JSON, _not_utf8(line) or f"{text.msg} at character {text.pos} of the line")
    record = orjson.loads(line)
    if not isinstance(record, dict):
        return Refusal(Reason.NOT_AN_OBJECT, f"expected an object, found {_type_name(record)}")
    return _judge_field(record, path)


def _judge_field(record: dict[str, object], path: tuple[str, ...]) -> Refusal:
    if flat_name(path) in record and not has_nested(record, path):
        path = (flat_name(path),)
    value: object = record
    where = ""
    for depth, name in enumerate(path):
        if not isinstance(value, dict):
            found = f"field {where!r} is {_type_name(value)}, expected an object"
            return Refusal(Reason.WRONG_TEXT_TYPE, found)
        where = ".".join(path[: depth + 1])
        if name not in value:
            fields = ", ".join(list(value)[:10]) or "none"
            return Refusal(Reason.MISSING_TEXT, f"no field {where!r}; fields found: {fields[:200]}")
        value = value[name]
        if value is None:
            return Refusal(Reason.NULL_TEXT, f"field {where!r} is null")
    return Refusal(Reason.WRONG_TEXT_TYPE, f"field {where!r} is {_type_name(value)}, expected a string")


def _type_name(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}
    return names.get(type(value), "an object")
