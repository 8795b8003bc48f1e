"""The heartbeat of a run on an object store: its driver rewrites a small object each minute.

A process of another machine cannot be asked, and its receipts come whenever a range ends. The object's age is told by
the store's own clock, which also dates its answers, so that no machine's clock counts. It says nothing about data: no
run reads it, and one that cannot write it goes on all the same. It goes when its run ends in order; that of a killed
run is taken for dead when some beats have been missed.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tokenization_worker.errors import TokenizationError
from tokenization_worker.messages.client_errors import words_of
from tokenization_worker.storage.base import MARK_ABSENT, PreconditionFailed, Store
from tokenization_worker.storage.reserved import ALIVE

BEAT_S = 60.0
"""One small write a minute: 43,000 a month, which cost 0.2 dollars where ten thousand cost 0.05."""

DEAD_AFTER_S = 180.0
"""Three beats: one may fail, and the next be late."""

_PATIENCE_S = 5.0
"""How long to wait for the first beat and for the last: a store that does not answer delays neither run nor stop."""

_LOG = logging.getLogger(__name__)


class Heartbeat:
    """Within the block, beats; `store` should not repeat calls that fail: the next beat does."""

    def __init__(self, store: Store, wait: Callable[[threading.Event, float], bool] = threading.Event.wait) -> None:
        self._store = store
        self._wait = wait
        self._path = f"{ALIVE}{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._version = MARK_ABSENT
        self._is_seen = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._live, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_seen.wait(_PATIENCE_S)  # what the run then does, comes after
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._is_over.set()
        self._thread.join(_PATIENCE_S)

    def _live(self) -> None:
        self._try(self._beat)
        self._is_seen.set()
        while not self._wait(self._is_over, BEAT_S):
            self._try(self._beat)
        if self._version != MARK_ABSENT:
            self._try(lambda: self._store.delete(self._path, version=self._version))

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except TokenizationError as error:  # nothing depends on it but what `status` and `clean` see
            _LOG.info("%s", error.message)
        except Exception as error:  # noqa: BLE001  a beat that fails must not be the last one
            _LOG.warning(
                "cannot write the heartbeat %s/%s: %s: %s; if no later one succeeds, tokjob status and tokjob clean "
                "treat this run as dead",
                self._store.uri.rstrip("/"),
                self._path,
                type(error).__name__,
                words_of(error),
            )

    def _beat(self) -> None:
        try:
            with self._store.upload(self._path, expect=self._version) as upload:
                upload.write(b"A run goes on here.\n")
                self._version = upload.commit().version
        except PreconditionFailed:  # the answer to an earlier beat was lost, or `clean` has removed it
            found = self._store.stat(self._path)
            self._version = MARK_ABSENT if found is None else found.version
