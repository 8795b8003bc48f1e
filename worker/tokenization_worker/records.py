"""Records read back: one that cannot be read is a named error that says what to do, never a traceback.

Every reader of a durable record parses inside `parsing`. What a record means is left to its module.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tokenization_worker import layout
from tokenization_worker.errors import DataError


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
    if path.startswith(layout.LEDGER):
        what = "range" if "/ranges/" in path else "shard"
        return f"delete this file and start again: the {what} is done again"
    return f"remove the unfinished run (tokjob clean {uri}) and start again"
