"""The product's cloud storage with shorter patience, for this process: everything else about it is the product.

A run makes its own stores, whose retry budget is the default of an argument: here that default is another one. Each
request keeps its time-out, only shorter; one without any is an error, for it could wait for ever. Uploads of more than
a chunk go in many requests: a small chunk lets small objects do so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from google.api_core.retry import Retry
from requests.adapters import HTTPAdapter

from tokenization_worker.storage.gcs import upload as gcs_upload
from tokenization_worker.storage.gcs.client import RETRY, PatientRetry
from tokenization_worker.storage.gcs.source import GcsSource
from tokenization_worker.storage.gcs.store import GcsStore
from tokenization_worker.storage.open import _open_store
from tokenization_worker.storage.sources import _source_without_pins

CHUNK_BYTES = 256 << 10

SHORT_TIMEOUT_S, PATIENCE_S = 0.1, 60.0
"""A time-out for a call that will stall, and one that no call meets, however busy the machine is."""


_waited = threading.local()


def _waited_s() -> float:
    return getattr(_waited, "seconds", 0.0)


def _wait(seconds: float) -> None:
    _waited.seconds = _waited_s() + seconds
    time.sleep(seconds)


class _WaitingCounts(PatientRetry):
    """Only waits between tries use its budget up, and not the tries: so their number depends on no machine."""

    clock = staticmethod(_waited_s)
    sleep = staticmethod(_wait)


def quick_retry(budget_s: float) -> Retry:
    """The product's retry, with a shorter budget and back-off: 8 to 14 tries in 0.1 s, and 5 for each further 0.1 s
    at least, 10 at most."""
    return _WaitingCounts(predicate=RETRY._predicate, initial=0.002, maximum=0.02, timeout=budget_s)


@contextmanager
def quick_gcs(
    budget_s: float, read_timeout_s: Callable[[], float], *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[None]:
    """Until the end of the block, new stores and sources give up after `budget_s`, a request after `read_timeout_s`,
    which is asked for each of them.
    """
    send = HTTPAdapter.send

    def send_quickly(adapter: HTTPAdapter, request: Any, *args: Any, **options: Any) -> Any:
        given = options["timeout"]
        read = given[1] if isinstance(given, tuple) else given
        assert read is not None, f"{request.method} {request.url} has no time-out"
        options["timeout"] = (read, min(read, read_timeout_s()))
        return send(adapter, request, *args, **options)

    with ExitStack() as stack:
        retry = quick_retry(budget_s)
        for kind in (GcsStore, GcsSource):
            defaults = kind.__init__.__kwdefaults__  # type: ignore[misc]
            stack.enter_context(patch.dict(defaults, retry=retry))
        stack.enter_context(patch.object(gcs_upload, "CHUNK_BYTES", chunk_bytes))
        stack.enter_context(patch.object(HTTPAdapter, "send", send_quickly))
        for made in (_open_store, _source_without_pins):
            made.cache_clear()
            stack.callback(made.cache_clear)
        yield
