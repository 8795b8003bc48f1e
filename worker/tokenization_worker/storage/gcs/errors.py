"""Maps the errors of the Google Cloud Storage client to this project's errors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import requests
import urllib3.exceptions
from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse

from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.messages.client_errors import words_of
from tokenization_worker.messages.redact import causes_redacted
from tokenization_worker.storage.endpoints import not_usable
from tokenization_worker.storage.gcs.client import EMULATOR_VARIABLE, PAYER, is_refused_tls, split_gcs_uri
from tokenization_worker.storage.retry import calling

_DENIED = re.compile(r"(?:([^\s\"':]+@[^\s\"']+) )?does not have ([\w.]+) access")


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
        if is_refused_tls(error) and (host := os.environ.get(EMULATOR_VARIABLE)):
            why = f"the service there does not use https: {_words(error)}"
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
        next_step="start the same command again; finished work is kept. If it never works: "
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
        f"cannot {access.verb} {uri}: the requests of bucket {split_gcs_uri(uri)[0]!r} are billed to the requester, "
        f"but no project is set: {_words(error)}",
        next_step=f"export {PAYER}=PROJECT, wherever the job's processes run; Google bills the requests to that "
        "project",
    )


def _no_credentials(access: Access, uri: str, error: Exception) -> SpecError:
    # What the library says of credentials that it does not find needs the address in it.
    words = str(error) if isinstance(error, auth_exceptions.DefaultCredentialsError) else _words(error)
    return SpecError(
        access.reason,
        f"cannot {access.verb} {uri}: no valid credentials: {words}",
        next_step="run gcloud auth application-default login; in a cluster, bind the ServiceAccount to a Google "
        "service account",
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
