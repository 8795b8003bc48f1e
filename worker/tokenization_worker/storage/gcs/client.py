"""The Google Cloud Storage client: one a process, with its connections, its retries and the service's clock.

Importing this module costs 0.2 s (the client library): `open` and `sources` do so only for `gs://`. What is
retried: reads, and writes that name the generation they expect; by `retry`, 120 s in all, or as long as the service
asks for. What the client's errors mean is the business of `errors`.
"""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, ParamSpec, TypeAlias, TypeVar

import requests
import requests.adapters
from google.api_core import exceptions
from google.api_core.retry import Retry
from google.cloud.storage import Client
from google.cloud.storage.retry import DEFAULT_RETRY

from tokenization_worker.errors import SpecError
from tokenization_worker.messages.redact import redact
from tokenization_worker.storage.endpoints import endpoint_in, require_usable_proxies
from tokenization_worker.storage.retry import Retry as Tries
from tokenization_worker.storage.retry import asked_wait

P = ParamSpec("P")
T = TypeVar("T")

Blob: TypeAlias = Any
"""The library's handle of an object. It has no type annotations, so `Any` is what there is to say."""

CONNECT_TIMEOUT_S = 10.0
"""Where packets are dropped on the way, nobody learns so from the service."""

READ_TIMEOUT_S = 30.0
"""A download that receives no byte for this time is started again."""

CONNECTIONS = 32
"""Calls that one process makes at once where it has many to make. The client keeps a connection for each."""

PAYER = "GOOGLE_CLOUD_QUOTA_PROJECT"
"""The variable that names the project which pays for requests, also for Google's other libraries."""

http_error: Callable[..., exceptions.GoogleAPICallError] = exceptions.from_http_status
"""The library's exception for a status code and the service's words."""

EMULATOR_VARIABLE = "STORAGE_EMULATOR_HOST"

_REFUSED_TLS = re.compile("WRONG_VERSION_NUMBER|CERTIFICATE_VERIFY_FAILED|HTTP_REQUEST|RECORD_LAYER_FAILURE")
"""OpenSSL's words for an answer that is no TLS, and for a certificate that it does not trust."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")


class PatientRetry(Retry):
    """The library's settings for our own tries: it says nothing while a call fails, and reads no Retry-After."""

    clock: Callable[[], float] = staticmethod(time.monotonic)
    sleep: Callable[[float], None] = staticmethod(time.sleep)

    def __call__(self, func: Callable[P, T], on_error: Callable[[Exception], Any] | None = None) -> Callable[P, T]:
        tries = Tries(self.timeout or 0.0, self._initial, self._maximum, self.clock, self.sleep)

        def wait_of(error: Exception) -> float | None:
            if not self._predicate(error):
                return None
            if on_error is not None:
                on_error(error)
            return asked_wait(_headers(error).get("retry-after"))

        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return tries.call(lambda: func(*args, **kwargs), wait_of)

        return call


def _headers(error: Exception) -> Mapping[str, str]:
    response = getattr(error, "response", None)
    return response.headers if isinstance(response, requests.Response) else {}


def _may_pass(error: Exception) -> bool:
    """Whether the same request may succeed later. Who speaks another protocol, or has a certificate that is refused,
    does so each time.
    """
    return bool(DEFAULT_RETRY._predicate(error)) and not is_refused_tls(error)


def is_refused_tls(error: BaseException) -> bool:
    """Whether the server speaks no TLS, or has a certificate that is not trusted: it will do so each time."""
    return isinstance(error, requests.exceptions.SSLError) and bool(_REFUSED_TLS.search(str(error)))


RETRY = PatientRetry(predicate=_may_pass)
"""For calls that may be repeated: 429, 5xx, broken connections and time-outs, for 120 s; longer where the service asks
for that.
"""


class _Adapter(requests.adapters.HTTPAdapter):
    """Keeps a connection for each call at once, and does not wait for one as long as for an answer."""

    def __init__(self) -> None:
        super().__init__(pool_maxsize=CONNECTIONS)

    def send(self, request: Any, **how: Any) -> Any:  # type: ignore[override]  # as `requests` calls it
        timeout = how.get("timeout")
        if isinstance(timeout, int | float):
            how["timeout"] = (min(timeout, CONNECT_TIMEOUT_S), timeout)
        return super().send(request, **how)


def gcs_client() -> Any:
    """This process's client; a forked child gets its own, since connections cannot be shared."""
    require_usable_proxies()
    return _client_of(os.getpid(), endpoint_in(EMULATOR_VARIABLE))[0]


def service_clock() -> ServiceClock:
    """The clock of the service that `gcs_client` asks."""
    return _client_of(os.getpid(), endpoint_in(EMULATOR_VARIABLE))[1]


@cache
def _client_of(pid: int, emulator: str | None) -> tuple[Any, ServiceClock]:
    del pid, emulator  # the client reads the variable itself, and takes no credentials when it is set
    # For traces nobody asked for the library fetches each bucket's metadata: a thread, and a permission we do not need.
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    make_client: Callable[..., Any] = Client
    client = make_client(project=None)
    session = client._http
    clock = ServiceClock()
    session.hooks["response"].append(clock.note)
    if not getattr(session, "is_mtls", False):  # whose adapter holds the certificate
        keep_connections(session)
    return client, clock


class ServiceClock:
    """The time by a service's clock, from the answers that are noted. Safe for threads.

    `monotonic_s`: this machine's seconds, which go on between two answers.
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._last = ("", 0.0)  # the Date header of the last answer, and when it came: replaced as one

    def note(self, response: requests.Response, *_: object, **__: object) -> None:
        """Take the time of an answer; a hook of `requests`."""
        if date := response.headers.get("date"):
            self._last = (date, self._monotonic_s())

    def now(self) -> datetime:
        """To the second, from the last answer; this machine's time where that gave none."""
        date, came_s = self._last
        try:
            sent = parsedate_to_datetime(date)
        except ValueError:
            return datetime.now(UTC)
        return sent.replace(tzinfo=sent.tzinfo or UTC) + timedelta(seconds=self._monotonic_s() - came_s)


def keep_connections(session: requests.Session) -> None:
    """Let it keep one for each call that this process makes at once."""
    for scheme in ("https://", "http://"):
        session.mount(scheme, _Adapter())


def gcs_bucket(name: str) -> Any:
    """The client's handle of a bucket, with the project that pays for it, if one is named. No request."""
    return gcs_client().bucket(name, user_project=os.environ.get(PAYER) or None)


def split_gcs_uri(uri: str) -> tuple[str, str]:
    """Bucket and object name (or prefix, maybe empty) of a `gs://` URI; raises `SpecError`."""
    bucket, _, name = uri.partition("://")[2].partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise SpecError(
            "SpecInvalid",
            f"{uri!r}: {redact(uri).partition('://')[2].partition('/')[0]!r} is not the name of a bucket",
            next_step="write gs://bucket/path: a bucket's name is of small letters, digits, - _ and . and has at "
            "least 3 of them; wildcards may follow the bucket, not stand in it",
        )
    return bucket, name


def crc32c_number(text: str | None) -> int | None:
    """The checksum as a number; the service writes it as base64 of 4 big-endian bytes."""
    return None if not text else int.from_bytes(base64.b64decode(text), "big")


def crc32c_text(number: int) -> str:
    """The checksum as the service writes it."""
    return base64.b64encode(number.to_bytes(4, "big")).decode()
