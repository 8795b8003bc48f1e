"""The S3 client, one a process, and the mapping of its errors. Read-only.

Importing this module costs 0.2 s (the client library): `sources` does so only for `s3://`. Where the service is
and who asks is said by what every AWS tool reads: AWS_ENDPOINT_URL, AWS_PROFILE, keys, roles. Where that gives no
credentials at all, requests are not signed, which is how public buckets are read. The library's own tries are
counted, not timed, and end before a body is read, so there is one try here and `retry` outside.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import boto3
from botocore import UNSIGNED
from botocore import exceptions as boto_exceptions
from botocore.config import Config
from botocore.exceptions import ClientError as ClientError  # the source catches it

from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.messages.client_errors import words_of
from tokenization_worker.messages.redact import causes_redacted, redact, redact_address
from tokenization_worker.storage.endpoints import endpoint_in, require_usable_proxies
from tokenization_worker.storage.retry import asked_wait, calling

TIMEOUT_S = 30.0
"""Without an answer, or within a body without a byte, a request is given up and made again."""

CONNECTIONS = 32
"""Calls that one process makes at once where it has many to make. The client keeps a connection for each."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_BUSY = {"InternalError", "OperationAborted", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling"}
_UNKNOWN_PRINCIPAL = {"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch"}
_NOT_NOW = {
    "InvalidObjectState": "the object is archived: restore it (aws s3api restore-object), then start the same command",
    "RequestTimeTooSkewed": "set this machine's clock, then start the same command again",
}
"""Codes of a 403 that is not about who asks."""

_NO_CREDENTIALS = (
    boto_exceptions.ConfigParseError,
    boto_exceptions.NoCredentialsError,
    boto_exceptions.PartialCredentialsError,
    boto_exceptions.ProfileNotFound,
    boto_exceptions.SSOTokenLoadError,
    boto_exceptions.TokenRetrievalError,
    boto_exceptions.UnauthorizedSSOTokenError,
)
_BROKEN = (
    boto_exceptions.ConnectionError,
    boto_exceptions.HTTPClientError,
    boto_exceptions.IncompleteReadError,
    boto_exceptions.ResponseStreamingError,
)
"""What a connection raises that cannot be made, or that broke, before or within a body."""

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_SETTINGS = (*_ENDPOINTS, "AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_CONFIG_FILE")


class S3Access(NamedTuple):
    """What a call was about to do, and the IAM action that allows it."""

    verb: str
    action: str


LIST = S3Access("list", "s3:ListBucket")
READ = S3Access("read", "s3:GetObject")


def s3_client() -> Any:
    """This process's client; a forked child gets its own, since connections cannot be shared."""
    require_usable_proxies()
    for variable in _ENDPOINTS:
        endpoint_in(variable)
    return _client_of(os.getpid(), tuple(os.environ.get(name) for name in _SETTINGS))


@cache
def _client_of(pid: int, settings: tuple[str | None, ...]) -> Any:
    del pid, settings  # the library reads the variables itself
    session = boto3.Session()
    config = Config(
        connect_timeout=10,
        read_timeout=TIMEOUT_S,
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=CONNECTIONS,
        response_checksum_validation="when_required",  # a range has none
        signature_version=UNSIGNED if session.get_credentials() is None else None,
    )
    try:
        return session.client("s3", config=config)
    except ValueError as error:
        raise SpecError(
            "StorageNotUsable",
            f"s3://: the endpoint_url of the AWS configuration: {redact_address(str(error))}",
            next_step="write it as http://host:port",
        ) from None  # it shows the address


def request_payer() -> dict[str, str]:
    """What a request says to a bucket whose readers pay: nothing, unless AWS_REQUEST_PAYER=requester."""
    payer = os.environ.get("AWS_REQUEST_PAYER")
    return {"RequestPayer": payer} if payer else {}


def split_s3_uri(uri: str) -> tuple[str, str]:
    """Bucket and key (or prefix, maybe empty) of an `s3://` URI; raises `SpecError`."""
    bucket, _, key = uri.partition("://")[2].partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise SpecError(
            "SpecInvalid",
            f"{uri!r}: {redact(uri).partition('://')[2].partition('/')[0]!r} is not the name of a bucket",
            next_step="write s3://bucket/path; wildcards may follow the bucket, not stand in it",
        )
    return bucket, key


def s3_wait(error: Exception) -> float | None:
    """For `Retry.call`: where the same request may succeed later, the seconds that the service asks for, or 0."""
    if isinstance(error, ClientError):
        if status_of(error) < 500 and status_of(error) != 429 and _code(error) not in _BUSY:
            return None
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        return asked_wait(headers.get("retry-after"))
    if isinstance(error, boto_exceptions.SSLError):
        return None
    return 0.0 if isinstance(error, _BROKEN) else None


@contextmanager
def map_s3_errors(access: S3Access, uri: str) -> Iterator[None]:
    """Turn the client's errors into the answer their reader can act on.

    A missing object is the caller's to catch (`status_of`); here a 404 means the bucket.
    """
    with causes_redacted(), _mapped(access, uri), calling(f"{access.verb} {uri}"):
        yield


@contextmanager
def _mapped(access: S3Access, uri: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        if _code(error) in _UNKNOWN_PRINCIPAL or status_of(error) == 401:
            raise _no_credentials(access, uri, _words(error)) from error
        if _code(error) in _NOT_NOW:
            raise SpecError(
                "SourceNotReadable", f"cannot {access.verb} {uri}: {_words(error)}", next_step=_NOT_NOW[_code(error)]
            ) from error
        if status_of(error) == 403:
            raise _not_permitted(access, uri, error) from error
        if status_of(error) == 404:
            raise _no_bucket(access, uri) from error
        raise _failed(access, uri, _words(error)) from error
    except _NO_CREDENTIALS as error:
        raise _no_credentials(access, uri, words_of(error)) from error
    except (boto_exceptions.BotoCoreError, OSError) as error:
        raise _failed(access, uri, words_of(error)) from error


def status_of(error: ClientError) -> int:
    """The HTTP status of the service's answer."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _words(error: ClientError) -> str:
    """The service's own words."""
    words = (str(status_of(error)), _code(error), str(error.response.get("Error", {}).get("Message", "")))
    return redact(" ".join(dict.fromkeys(word for word in words if word)))[:500]


def _failed(access: S3Access, uri: str, words: str) -> TemporaryError:
    return TemporaryError(
        "StorageFailed",
        f"cannot {access.verb} {uri}: {words}",
        next_step="start the same command again; finished work is kept. If it never works, check the network, and "
        "AWS_ENDPOINT_URL if it is set",
    )


def _no_bucket(access: S3Access, uri: str) -> SpecError:
    bucket = split_s3_uri(uri)[0]
    return SpecError(
        "SourceNotReadable",
        f"cannot {access.verb} {uri}: bucket {bucket!r} does not exist at {s3_client().meta.endpoint_url}",
        next_step="correct the URI, or AWS_ENDPOINT_URL if the bucket is not at AWS",
    )


def _no_credentials(access: S3Access, uri: str, words: str) -> SpecError:
    return SpecError(
        "SourceNotReadable",
        f"cannot {access.verb} {uri}: no valid credentials: {words}",
        next_step="set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; in a cluster, bind the "
        "ServiceAccount to a role",
    )


def _not_permitted(access: S3Access, uri: str, error: ClientError) -> SpecError:
    if s3_client().meta.config.signature_version is UNSIGNED:
        who = "an anonymous request (no credentials were found)"
        step = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    else:
        who = "this principal"
        step = f"allow {access.action} to the principal that `aws sts get-caller-identity` names, or use other "
        step += "credentials: AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    hint = "; without s3:ListBucket, AWS gives the same answer for a key that does not exist" if access is READ else ""
    return SpecError(
        "SourceNotReadable",
        f"cannot {access.verb} {uri}: {who} lacks {access.action}: {_words(error)}{hint}",
        next_step=f"{step}; for a bucket that bills the requester, set AWS_REQUEST_PAYER=requester",
    )
