"""Records: small JSON objects with a checksum of their own.

One that cannot be read, or is not as it was written, is a named error that says what to do, never a traceback: every
reader of a durable record parses inside `parsing`. What a record means is left to its module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import google_crc32c
import orjson

from tokenization_worker.errors import ChangedError, DataError
from tokenization_worker.messages.commands import tokjob
from tokenization_worker.output import layout

CHECKSUM = "checksum"


def dump_json(value: dict[str, Any]) -> bytes:
    """Canonical JSON of a small object, on a line."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def dump_record(fields: dict[str, Any]) -> bytes:
    """A record of these fields."""
    return dump_json(fields | {CHECKSUM: record_checksum(fields)})


def load_record(data: bytes, *, is_proven: bool = False) -> dict[str, Any]:
    """The fields of a record, plain JSON values; raises `ValueError` or `TypeError` if it is not as it was written.

    `is_proven`: the caller knows that these are the writer's bytes.
    """
    fields = orjson.loads(data)
    if not isinstance(fields, dict):
        raise TypeError(f"found {type(fields).__name__}, expected an object")
    expected = fields.pop(CHECKSUM, None)
    if not is_proven and expected != record_checksum(fields):
        raise ValueError(f"its checksum is {expected}, of its fields {record_checksum(fields)}")
    return fields


def require_version(uri: str, path: str, found: object, known: int) -> None:
    """Raise `ChangedError` where the record at `path` has another format version than the `known` one."""
    if found != known:
        raise ChangedError(
            "OutputConflict",
            f"{uri}/{path} has format version {found}; this program reads version {known}",
            next_step="use the version of this program that wrote it",
        )


def record_checksum(fields: dict[str, Any]) -> str:
    """CRC32C of the fields as canonical JSON, as 8 hexadecimal digits."""
    return f"{google_crc32c.value(dump_json(fields)):08x}"


_OF_BAD_BYTES = (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError)
"""What parsing bytes that are no record raises: no JSON, a field that is missing or of another type, or a number that
its array cannot hold. Any other error is none of the bytes."""


@contextmanager
def parsing(uri: str, path: str, *, is_whole: bool = False, advise: Callable[[], str] | None = None) -> Iterator[None]:
    """Turn what parsing the record at `path` of the store at `uri` raises into `DataError("RecordCorrupt")`.

    `is_whole`: its checksum is right. Then a start does not delete it, and the next step is a person's. `advise`: the
    next step, where the path alone does not decide it.
    """
    try:
        yield
    except _OF_BAD_BYTES as error:
        what = f"no field {error}" if isinstance(error, KeyError) else str(error)
        if is_whole and path.startswith((layout.VERDICTS, layout.LEDGER)):
            raise DataError(
                "RecordCorrupt",
                f"{uri}/{path} has the right checksum, but this version of the program cannot read it: {what}",
                next_step="use the version that wrote it. If you do not have it, delete this file and start the same "
                f"command again: it {made_again(path)}",
            ) from error
        step = _next_step(uri, path) if advise is None else advise()
        raise DataError("RecordCorrupt", f"{uri}/{path} is corrupt: {what}", next_step=step) from error


def _next_step(uri: str, path: str) -> str:
    if path.startswith(layout.CRASH_VERDICTS):
        return "delete this file and start again, which tests the document again"
    if path.startswith((layout.VERDICTS, layout.LEDGER)):
        return f"start the same command again: it deletes this file, and {made_again(path)}"
    return (
        f"remove the unfinished run ({tokjob('clean', uri)}) and start again; beside an index.json delete instead "
        f"{layout.PLAN}, {layout.EPOCHS} and {layout.LEDGER}: a complete dataset does not need them"
    )


def made_again(path: str) -> str:
    """What is done again where the record at `path` is gone, in words."""
    if path.startswith(layout.VERDICTS):
        return "reads the source file again"
    if layout.is_range_receipt(path):
        return "tokenizes the range again"
    return "writes the shard again" if layout.is_shard_receipt(path) else "does the task of this receipt again"


def require_plan(uri: str, path: str, plan_id: str, expected: str) -> None:
    """Raise OutputConflict for a receipt of another plan: its ranges are other parts of the source."""
    if plan_id != expected:
        raise ChangedError(
            "OutputConflict",
            f"{uri}/{path} belongs to plan {plan_id}, expected {expected}",
            next_step="a run of another plan still writes there, or another process moved its files there: end it, and "
            "write to another output.uri",
        )
