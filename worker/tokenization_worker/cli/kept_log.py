"""Stores a driver's log at the output when the driver ends. Best effort: no run fails or waits for its log.

It is written only where the output is the run's own: what another job has at `output.uri` is not touched.
"""

from __future__ import annotations

import logging
import threading

from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import run_key
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.errors import TokenizationError
from tokenization_worker.events import Event, Finished, Planned
from tokenization_worker.messages.redact import redact
from tokenization_worker.output.driver_log import DriverLog, write_log
from tokenization_worker.output.plan_file import read_plan
from tokenization_worker.storage.base import Store
from tokenization_worker.storage.open import open_store

PATIENCE_S = 20.0
STOPPED_PATIENCE_S = 8.0
"""Of the 30 s that Kubernetes leaves a Pod to end."""

_LOG = logging.getLogger(__name__)


class KeptLog:
    """The log of one attempt. Also a watcher of events: they tell that the output is the run's own."""

    def __init__(self, log: DriverLog, job: TokenizationJob, run: int, attempt: int) -> None:
        self._log = log
        self._job = job
        self._run = run
        self._attempt = attempt
        self._is_ours = False
        self._uri: str | None = None

    def watch(self, event: Event) -> None:
        """Look at what the run says."""
        self._is_ours = self._is_ours or isinstance(event, Planned | Finished)

    def write(self, patience_s: float = PATIENCE_S) -> str | None:
        """Write the log; its URI, or None where that was not to be or not possible in time."""
        thread = threading.Thread(target=self._try, name="driver-log", daemon=True)
        thread.start()
        thread.join(patience_s)
        if thread.is_alive():
            _LOG.warning("cannot write the driver's log to the output within %.0f s", patience_s)
        return self._uri

    def _try(self) -> None:
        try:
            store = open_store(resolve_data(self._job).output.uri)
            if self._is_ours or self._is_planned(store):
                self._uri = write_log(store, self._run, self._attempt, self._log.content())
        except TokenizationError as error:
            _LOG.warning("cannot write the driver's log to the output: %s", error.message)
        except BaseException as error:  # noqa: BLE001  as a stop raises: it ends here, not in a traceback of a thread
            _LOG.warning("cannot write the driver's log to the output: %s", redact(f"{type(error).__name__}: {error}"))

    def _is_planned(self, store: Store) -> bool:
        """Whether the plan that is there is of this job: its source may be gone since."""
        plan = read_plan(store)
        return plan is not None and plan.run_key == run_key(self._job)
