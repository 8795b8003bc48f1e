"""The Google Cloud Storage client and what its errors mean: one client a process, one mapping for all callers.

Importing this module costs 0.2 s (the client library): `open` and `sources` do so only for `gs://`. What is
retried: reads, and writes that name the generation they expect; the library's back-off, each wait a random part of
twice the last one's limit, 120 s in all. A stored object comes in one piece: between two pieces a thread would wait for
whoever computes, 5 ms each time.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from tokenization_worker.storage.waiting import Waiting, calling, words_of

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

http_error: Callable[[int, str], exceptions.GoogleAPICallError] = exceptions.from_http_status
"""The library's exception for a status code and the service's words."""

EMULATOR_VARIABLE = "STORAGE_EMULATOR_HOST"

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_DENIED = re.compile(r"(?:([^\s\"':]+@[^\s\"']+) )?does not have ([\w.]+) access")


class TellingRetry(Retry):
    """The library's, which says so when a call has failed for a while."""

    def __call__(self, func: Callable[P, T], on_error: Callable[[Exception], Any] | None = None) -> Callable[P, T]:
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            with Waiting(self.timeout) as tell:
                return repeat(func, on_error or tell)(*args, **kwargs)

        repeat = super().__call__
        return call


RETRY = TellingRetry(predicate=DEFAULT_RETRY._predicate)
"""For calls that may be repeated: 429, 5xx, broken connections and time-outs, for 120 s."""


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
    host = os.environ.get(EMULATOR_VARIABLE)
    if host and not re.fullmatch(r"https?://[^/\s]+/?", host):
        raise SpecError(
            "StorageNotUsable",
            f"gs://: {EMULATOR_VARIABLE} is {host!r}",
            next_step=f"write it as http://host:port, or unset {EMULATOR_VARIABLE}",
        )
    return _client_of(os.getpid(), host)


@cache
def _client_of(pid: int, emulator: str | None) -> Any:
    del pid, emulator  # the client reads the variable itself, and takes no credentials when it is set
    # For traces nobody asked for the library fetches each bucket's metadata: a thread, and a permission we do not need.
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    make_client: Callable[..., Any] = Client
    client = make_client(project=None)
    session = client._http
    if not getattr(session, "is_mtls", False):  # whose adapter holds the certificate
        keep_connections(session)
    return client


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
            f"{uri!r}: {bucket!r} is not the name of a bucket",
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
    try:
        with calling(f"{access.verb} {uri}"):
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
