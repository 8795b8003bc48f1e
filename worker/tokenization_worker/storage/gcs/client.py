"""The Google Cloud Storage client and what its errors mean: one client a process, one mapping for all callers.

Importing this module costs 0.2 s (the client library): `open` and `sources` do so only for `gs://`. What is
retried: reads, and writes that name the generation they expect; by `retry`, 120 s in all, or as long as the service
asks for. A stored object comes in one piece: between two pieces a thread would wait for
whoever computes, 5 ms each time.
"""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

import google_crc32c
import requests
import requests.adapters
import urllib3.exceptions
from google.api_core import exceptions
from google.api_core.retry import Retry
from google.auth import exceptions as auth_exceptions
from google.cloud.storage import Client
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from google.cloud.storage.retry import DEFAULT_RETRY

from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.messages.redact import causes_redacted, redact
from tokenization_worker.storage.endpoints import endpoint_in, not_usable, require_usable_proxies
from tokenization_worker.storage.retry import Retry as Tries
from tokenization_worker.storage.retry import asked_wait
from tokenization_worker.storage.waiting import calling, words_of

P = ParamSpec("P")
T = TypeVar("T")

Blob: TypeAlias = Any
"""The library's handle of an object. It has no type annotations, so `Any` is what there is to say."""

CONNECT_TIMEOUT_S = 10.0
"""Where packets are dropped on the way, nobody learns so from the service."""

READ_TIMEOUT_S = 30.0
"""A download that brings no byte for so long is begun again."""

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
_DENIED = re.compile(r"(?:([^\s\"':]+@[^\s\"']+) )?does not have ([\w.]+) access")


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
    return bool(DEFAULT_RETRY._predicate(error)) and not _is_refused_tls(error)


def _is_refused_tls(error: BaseException) -> bool:
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


class Access(NamedTuple):
    """What a call was about to do, for the message if it may not: an IAM permission and a role that has it."""

    verb: str
    permission: str
    reason: str
    role: str


WRITE = Access("write", "storage.objects.create", "OutputNotWritable", "roles/storage.objectUser")
DELETE = Access("delete", "storage.objects.delete", "OutputNotWritable", "roles/storage.objectUser")
READ = Access("read", "storage.objects.get", "OutputNotReadable", "roles/storage.objectUser")
LIST = Access("list", "storage.objects.list", "OutputNotReadable", "roles/storage.objectUser")
READ_SOURCE = Access("read", "storage.objects.get", "SourceNotReadable", "roles/storage.objectViewer")
LIST_SOURCE = Access("list", "storage.objects.list", "SourceNotReadable", "roles/storage.objectViewer")


def gcs_client() -> Any:
    """This process's client; a forked child gets its own, since connections cannot be shared."""
    require_usable_proxies()
    return _client_of(os.getpid(), endpoint_in(EMULATOR_VARIABLE))


@cache
def _client_of(pid: int, emulator: str | None) -> Any:
    del pid, emulator  # the client reads the variable itself, and takes no credentials when it is set
    # For traces nobody asked for the library fetches each bucket's metadata: a thread, and a permission we do not need.
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    make_client: Callable[..., Any] = Client
    client = make_client(project=None)
    session = client._http
    session.hooks["response"].append(_note_date)
    if not getattr(session, "is_mtls", False):  # whose adapter holds the certificate
        keep_connections(session)
    return client


class _Told(NamedTuple):
    """The Date header of an answer, and this machine's clock when it came."""

    date: str = ""
    came_s: float = 0.0


_told = _Told()


def _note_date(response: requests.Response, *_: object, **__: object) -> None:
    global _told  # of the process: any answer of the service will do
    if date := response.headers.get("date"):
        _told = _Told(date, time.monotonic())


def service_time() -> datetime:
    """The time by the service's clock, to the second, from its last answer; this machine's where it gave none."""
    try:
        told = parsedate_to_datetime(_told.date)
    except ValueError:
        return datetime.now(UTC)
    return told.replace(tzinfo=told.tzinfo or UTC) + timedelta(seconds=time.monotonic() - _told.came_s)


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


class _Parts(list[bytes]):
    """What a download is written to: its parts as they come, without a copy."""

    def write(self, data: bytes) -> None:
        self.append(data)

    def seek(self, offset: int) -> None:
        """The client begins anew."""
        del offset  # it is 0
        self.clear()


def _download(blob: Blob, **how: Any) -> bytes:
    """The stored bytes, in one piece where nothing went wrong on the way."""
    parts = _Parts()
    blob.download_to_file(parts, raw_download=True, single_shot_download=True, **how)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def download_whole(blob: Blob, uri: str, retry: Retry) -> bytes:
    """The object's stored bytes, checked against its CRC32C (and so its size); a missing one raises as `blob` does."""
    data = _download(blob, checksum="crc32c", retry=retry, timeout=READ_TIMEOUT_S)
    if crc32c_number(blob.crc32c) != google_crc32c.value(data):
        raise TemporaryError(
            "StorageFailed",
            f"{uri}: {len(data)} bytes came with the wrong checksum, or with none: expected {blob.crc32c}",
            next_step="start the same command again",
        )
    return data


def download_range(
    blob: Blob, uri: str, start: int, end: int, retry: Retry, timeout_s: float = READ_TIMEOUT_S
) -> bytes:
    """Stored bytes [start, end), fewer where the object ends before; `end` is greater than `start`."""
    try:
        data = _download(blob, start=start, end=end - 1, checksum=None, retry=retry, timeout=timeout_s)
    except exceptions.RequestRangeNotSatisfiable:
        return b""
    if len(data) > end - start:
        raise TemporaryError(
            "StorageFailed",
            f"{uri}: asked for bytes [{start}, {end}), got {len(data)} bytes",
            next_step="start the same command again",
        )
    return data


@contextmanager
def map_gcs_errors(access: Access, uri: str) -> Iterator[None]:
    """Turn the client's errors into the answer their reader can act on.

    A missing object is the caller's to catch (`exceptions.NotFound`); here a 404 means the bucket.
    """
    with causes_redacted(), _mapped(access, uri), calling(f"{access.verb} {uri}"):
        yield


@contextmanager
def _mapped(access: Access, uri: str) -> Iterator[None]:
    try:
        yield
    except exceptions.RetryError as error:
        raise _failed(access, uri, error.cause or error) from error
    except (exceptions.Unauthorized, exceptions.Forbidden) as error:
        raise _not_permitted(access, uri, error) from error
    except exceptions.NotFound as error:
        raise _no_bucket(access, uri) from error
    except exceptions.BadRequest as error:
        raise (_no_payer(access, uri, error) if _wants_payer(error) else _failed(access, uri, error)) from error
    except (auth_exceptions.DefaultCredentialsError, auth_exceptions.RefreshError) as error:
        if error.retryable:
            raise _failed(access, uri, error) from error
        raise _no_credentials(access, uri, error) from error
    except requests.exceptions.SSLError as error:
        if _is_refused_tls(error) and (host := os.environ.get(EMULATOR_VARIABLE)):
            why = f"the service there does not speak https: {_words(error)}"
            raise not_usable(EMULATOR_VARIABLE, host, why) from error
        raise _failed(access, uri, error) from error
    except (
        exceptions.GoogleAPIError,
        auth_exceptions.GoogleAuthError,
        DataCorruption,
        InvalidResponse,
        urllib3.exceptions.HTTPError,
        OSError,  # requests' errors are such
    ) as error:
        raise _failed(access, uri, error) from error


def is_missing_bucket(error: exceptions.NotFound) -> bool:
    """Whether a 404 for an object is about its bucket."""
    return "bucket does not exist" in str(error).lower()


def _failed(access: Access, uri: str, error: BaseException) -> TemporaryError:
    return TemporaryError(
        "StorageFailed",
        f"cannot {access.verb} {uri}: {_words(error)}",
        next_step="start the same command again; what is done is kept. If it never works: "
        + (f"is {EMULATOR_VARIABLE} right?" if EMULATOR_VARIABLE in os.environ else "is the network open?"),
    )


def _no_bucket(access: Access, uri: str) -> SpecError:
    bucket = split_gcs_uri(uri)[0]
    return SpecError(
        access.reason,
        f"cannot {access.verb} {uri}: bucket {bucket!r} does not exist",
        next_step=f"correct the URI, or create it: gcloud storage buckets create gs://{bucket}",
    )


def _wants_payer(error: exceptions.GoogleAPICallError) -> bool:
    """Whether a bucket's requesters pay, and the request did not say who."""
    words = str(error).lower()
    return "requester pays" in words and "no user project" in words


def _no_payer(access: Access, uri: str, error: exceptions.GoogleAPICallError) -> SpecError:
    return SpecError(
        access.reason,
        f"cannot {access.verb} {uri}: the requests of bucket {split_gcs_uri(uri)[0]!r} are paid by the requester, and "
        f"no project is named: {_words(error)}",
        next_step=f"export {PAYER}=PROJECT, wherever the job's processes run; requests are billed to that project",
    )


def _no_credentials(access: Access, uri: str, error: Exception) -> SpecError:
    # What the library says of credentials that it does not find needs the address in it.
    words = str(error) if isinstance(error, auth_exceptions.DefaultCredentialsError) else _words(error)
    return SpecError(
        access.reason,
        f"cannot {access.verb} {uri}: no valid credentials: {words}",
        next_step="gcloud auth application-default login; in a cluster: a service account bound to a Google one",
    )


def _not_permitted(access: Access, uri: str, error: exceptions.GoogleAPICallError) -> SpecError:
    if isinstance(error, exceptions.Unauthorized):
        return _no_credentials(access, uri, error)
    found = _DENIED.search(str(error))
    principal, permission = found.groups() if found else (None, access.permission)
    kind = "serviceAccount" if principal is None or principal.endswith(".gserviceaccount.com") else "user"
    what = f"gcloud storage buckets add-iam-policy-binding gs://{split_gcs_uri(uri)[0]}"
    role = access.role
    if permission.startswith("serviceusage."):  # of the project that is to pay
        what = f"gcloud projects add-iam-policy-binding {os.environ.get(PAYER) or 'PROJECT'}"
        role = "roles/serviceusage.serviceUsageConsumer"
    return SpecError(
        access.reason,
        f"cannot {access.verb} {uri}: {principal or 'this account'} lacks {permission}: {_words(error)}",
        next_step=f"{what} --member={kind}:{principal or 'ACCOUNT'} --role={role}",
    )


def _words(error: BaseException) -> str:
    """The service's own words, without the URL of the request (an upload's is a secret)."""
    response = getattr(error, "response", None)
    if isinstance(error, DataCorruption) or not isinstance(response, requests.Response):
        return words_of(error)
    try:
        detail = response.json()["error"]["message"]
    except (ValueError, LookupError, TypeError, requests.RequestException):  # not the service's usual JSON
        detail = response.reason
    return f"{response.status_code} {detail}"[:500]
