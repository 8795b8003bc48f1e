"""Records how the last start of an unfinished run failed. Only `status` shows it.

A start that ends by an error which the same command would meet again leaves its words beside the ledger; the next start
that gets as far removes them. Nothing is decided by this record: one that is stale, corrupt or missing changes what
`status` says of an unfinished run, and no more. Errors that pass (exit code 5) leave none: the same command goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tokenization_worker.errors import DataError, TemporaryError, TokenizationError
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import place_bytes
from tokenization_worker.output.record import dump_record, load_record, parsing
from tokenization_worker.storage.base import NotFound, Store

_LOG = logging.getLogger(__name__)


class RecordedFailure(NamedTuple):
    """The words of the error."""

    reason: str
    message: str
    next_step: str


@contextmanager
def recording_failure(store: Store, is_ours: Callable[[], bool]) -> Iterator[None]:
    """Leave the words of an error that ends the block, if the unfinished run at `store` is the one that failed."""
    try:
        yield
    except TemporaryError:
        raise
    except TokenizationError as error:
        try:
            if store.stat(layout.INDEX) is None and is_ours():
                _record(store, RecordedFailure(error.reason, error.message, error.next_step))
        except TokenizationError as second:  # the first error counts, and often it is the same
            if second.reason != error.reason:
                _LOG.warning("tokjob status cannot report this failure: %s", second.message)
        raise


def _record(store: Store, failure: RecordedFailure) -> None:
    place_bytes(store, layout.FAILURE, dump_record(failure._asdict()), allow_replace=lambda: None)
    store.close_scratch()  # this run is over, and must not seem to go on where its process does


def read_failure(store: Store) -> RecordedFailure | None:
    """How the last start failed; None where it did not, or nobody can tell."""
    try:
        data = store.read(layout.FAILURE)
        with parsing(store.uri, layout.FAILURE):
            fields = load_record(data)
            return RecordedFailure(*(str(fields[name]) for name in RecordedFailure._fields))
    except (NotFound, DataError):  # a corrupt one says nothing, and is in nobody's way
        return None


def forget_failure(store: Store) -> None:
    """A start that has come so far is told by what it does."""
    store.delete(layout.FAILURE)
