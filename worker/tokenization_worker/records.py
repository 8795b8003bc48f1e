"""Records: small JSON objects with a checksum of their own.

One that cannot be read, or is not as it was written, is a named error that says what to do, never a traceback: every
reader of a durable record parses inside `parsing`. What a record means is left to its module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import google_crc32c
import orjson

from tokenization_worker import layout
from tokenization_worker.errors import ChangedError, DataError

_CHECKSUM = "checksum"


def dump_json(value: dict[str, Any]) -> bytes:
    """Canonical JSON of a small object, on a line."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def dump_record(fields: dict[str, Any]) -> bytes:
    """A record of these fields."""
    return dump_json(fields | {_CHECKSUM: _checksum(fields)})


def load_record(data: bytes, *, is_proven: bool = False) -> dict[str, Any]:
    """The fields of a record, plain JSON values; raises `ValueError` or `TypeError` if it is not as it was written.

    `is_proven`: the caller knows that these are the writer's bytes.
    """
    fields = orjson.loads(data)
    if not isinstance(fields, dict):
        raise TypeError(f"found {type(fields).__name__}, expected an object")
    expected = fields.pop(_CHECKSUM, None)
    if not is_proven and expected != _checksum(fields):
        raise ValueError(f"its checksum is {expected}, of its fields {_checksum(fields)}")
    return fields


def _checksum(fields: dict[str, Any]) -> str:
    return f"{google_crc32c.value(dump_json(fields)):08x}"


@contextmanager
def parsing(uri: str, path: str) -> Iterator[None]:
    """Turn what parsing the record at `path` of the store at `uri` raises into `DataError("RecordCorrupt")`."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        what = f"no field {error}" if isinstance(error, KeyError) else str(error)
        raise DataError("RecordCorrupt", f"{uri}/{path} is damaged: {what}", next_step=_next_step(uri, path)) from error


def _next_step(uri: str, path: str) -> str:
    if path == layout.INDEX:
        return "delete this file and run the job again: it is written again from the ledger"
    if path.startswith(layout.VERDICTS):
        return "delete this file and start again: the source file is judged again"
    if path.startswith(layout.POISON):
        return "delete this file and start again: the document is judged again"
    if path.startswith(layout.LEDGER):
        what = "range" if "/ranges/" in path else "shard"
        return f"delete this file and start again: the {what} is done again"
    return f"remove the unfinished run (tokjob clean {uri}) and start again"


def require_plan(uri: str, path: str, plan_id: str, expected: str) -> None:
    """Raise OutputConflict for a receipt of another plan: its ranges are other parts of the source."""
    if plan_id != expected:
        raise ChangedError(
            "OutputConflict",
            f"{uri}/{path} belongs to plan {plan_id}, expected {expected}",
            next_step="a run of another plan still writes there, or somebody moved its files there: end it, and write "
            "to another output.uri",
        )
