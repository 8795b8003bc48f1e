"""Sends requests to the Hugging Face Hub, and maps its errors. Read-only.

Importing this module costs 0.2 s (the client library): `sources` does so only for `hf://`. The library knows the
endpoint (HF_ENDPOINT), the token, the addresses and the meaning of errors. Its own listing has no time-out, and its
tries are counted, not timed, without chance: so requests are made here, one at a time, with `retry` outside.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import quote

from huggingface_hub import HfApi, constants, get_token, hf_hub_url
from huggingface_hub.errors import (
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import HfFileMetadata, get_hf_file_metadata
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status, httpx, parse_ratelimit_headers

from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.messages.client_errors import words_of
from tokenization_worker.messages.redact import causes_redacted
from tokenization_worker.storage.endpoints import endpoint_in
from tokenization_worker.storage.hf.uri import ENDPOINT_VARIABLE, HfUri, split_hf_uri
from tokenization_worker.storage.retry import asked_wait, calling

__all__ = ["RemoteEntryNotFoundError", "RevisionNotFoundError"]

TIMEOUT_S = 30.0
"""Without an answer, or within a body without a byte, a request is given up and made again."""

_BUSY = frozenset({408, 429, 500, 502, 503, 504})
_EXPIRED = frozenset({400, 401, 403, 404, 410})
"""What a store answers to an address that the Hub signed for a while."""


class BadAnswer(Exception):
    """Something between here and the Hub answered, but not as the Hub does."""


def hf_endpoint() -> str:
    """Where the Hub is; raises `SpecError` for what is not an address, and for a token that no request can hold."""
    if not os.environ.get("HF_TOKEN", "").isascii():
        raise SpecError(
            "SourceNotReadable",
            "HF_TOKEN holds a character that no token has",
            next_step="set HF_TOKEN to the token as the Hub shows it, or unset it",
        )
    return endpoint_in(ENDPOINT_VARIABLE) or constants.ENDPOINT.rstrip("/")


def resolve_commit(place: HfUri) -> str:
    """The commit at which the revision stands now."""
    with _parsing():
        found = HfApi(endpoint=hf_endpoint()).dataset_info(
            place.repository, revision=place.revision, timeout=TIMEOUT_S, expand=["sha"]
        )
    if not found.sha:
        raise BadAnswer(f"no commit for revision {place.revision!r}")
    return str(found.sha)


Page: TypeAlias = tuple[list[RepoFile], str | None]
"""Some of a folder's files, and the address of the next page."""


def list_page(url: str) -> Page:
    """One page of a folder's listing."""
    response = get_session().get(url, headers=_headers(), timeout=TIMEOUT_S)
    hf_raise_for_status(response)
    make_file: Callable[..., RepoFile] = RepoFile
    with _parsing():
        files = [make_file(**row) for row in response.json() if row["type"] == "file"]
    return files, response.links.get("next", {}).get("url")


def tree_url(place: HfUri, commit: str, folder: str, *, recursive: bool) -> str:
    """The address of the first page of a folder's listing."""
    below = "/" + quote(folder.rstrip("/"), safe="") if folder else ""
    address = f"{hf_endpoint()}/api/datasets/{place.repository}/tree/{commit}{below}"
    return f"{address}?recursive={str(recursive).lower()}&expand=false"


def file_url(place: HfUri, revision: str) -> str:
    """The address of a file's bytes; it leads on to another host for all but small files."""
    return hf_hub_url(place.repository, place.path, repo_type=place.kind, revision=revision, endpoint=hf_endpoint())


def stat_file(url: str) -> HfFileMetadata:
    """A file's size, checksum and commit."""
    with _parsing():
        return get_hf_file_metadata(url, timeout=TIMEOUT_S, endpoint=hf_endpoint())


class RangeGetter:
    """Ranges of one file. The address that the Hub leads on to is used again until it expires.

    So one request to the Hub serves a file, whatever its size: the Hub counts them (a few thousand in five minutes),
    and not those to the stores behind it. For several threads: they wait for the first one's answer, where it may lead
    on.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._further: str | None = None
        self._leads_on = True  # as far as is known
        self._lock = threading.Lock()

    def get(self, start: int, end: int) -> bytes:
        """Bytes [start, end); one try."""
        wanted = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        further = self._further
        if further is not None:
            with get_session().stream("GET", further, headers=wanted, timeout=TIMEOUT_S) as response:
                if response.status_code not in _EXPIRED:
                    return _body(response, start, end)
        if not self._leads_on:
            return self._ask(wanted, start, end)
        with self._lock:
            if self._further == further and self._leads_on:
                return self._ask(wanted, start, end)
        return self.get(start, end)  # another thread has just asked

    def _ask(self, wanted: dict[str, str], start: int, end: int) -> bytes:
        """Ask the Hub itself, and keep the address that it leads on to."""
        self._further = None
        with get_session().stream("GET", self._url, headers=_headers() | wanted, timeout=TIMEOUT_S) as response:
            data = _body(response, start, end)
            self._leads_on = bool(response.history)
            if self._leads_on:
                self._further = str(response.url)
            return data


@lru_cache(maxsize=64)
def range_getter(url: str) -> RangeGetter:
    """That of a file at a commit: a process that reads one slice of it after the other asks the Hub once."""
    return RangeGetter(url)


def _body(response: httpx.Response, start: int, end: int) -> bytes:
    if response.history and response.status_code in _EXPIRED:
        raise BadAnswer(f"{response.status_code} from the store to which the Hub redirected")
    hf_raise_for_status(response)
    parts, size = [], 0
    for part in response.iter_bytes():
        parts.append(part)
        size += len(part)
        if size > end - start:  # the whole file, it may be
            break
    if size != end - start:
        raise BadAnswer(f"asked for bytes [{start}, {end}), got {size} or more, with status {response.status_code}")
    return b"".join(parts)


@contextmanager
def _parsing() -> Iterator[None]:
    try:
        yield
    except HFValidationError:
        raise  # a ValueError, of our own URI
    except (ValueError, KeyError, TypeError) as error:
        raise BadAnswer(f"unexpected answer, not from the Hub: {type(error).__name__}: {error}") from error


def _headers() -> dict[str, str]:
    return build_hf_headers(library_name="tokenization")


def hf_wait(error: Exception) -> float | None:
    """For `Retry.call`: where the same request may succeed later, the seconds that the Hub asks for, or 0."""
    if isinstance(error, HfHubHTTPError):
        if error.response.status_code not in _BUSY:
            return None
        limit = parse_ratelimit_headers(error.response.headers)
        if error.response.status_code == 429 and limit is not None and limit.remaining == 0:
            return float(limit.reset_in_seconds)
        return asked_wait(error.response.headers.get("retry-after"))
    return 0.0 if isinstance(error, httpx.TransportError | BadAnswer) else None


@contextmanager
def map_hf_errors(uri: str, place: HfUri | None = None) -> Iterator[None]:
    """Turn the client's errors into the answer their reader can act on. `place`: what `uri` means, where it is no
    `hf://` URI.

    A missing path is the caller's to catch (`RemoteEntryNotFoundError`).
    """
    place = place or split_hf_uri(uri)
    with causes_redacted(), _mapped(uri, place), calling(f"read {uri}", service=hf_endpoint()):
        yield


@contextmanager
def _mapped(uri: str, place: HfUri) -> Iterator[None]:
    page = f"{hf_endpoint()}/{'datasets/' if place.kind == 'dataset' else ''}{place.repository}"
    try:
        yield
    except GatedRepoError as error:
        raise SpecError(
            "SourceNotReadable",
            f"cannot read {uri}: {place.kind} {place.repository} is gated, and {_who()} has no access: {_words(error)}",
            next_step=f"ask for access at {page} and set HF_TOKEN to a token of that account which may read gated "
            f"{place.kind}s",
        ) from error
    except RepositoryNotFoundError as error:
        raise SpecError(
            "SourceNotReadable",
            f"cannot read {uri}: there is no {place.kind} {place.repository} at {hf_endpoint()}, or it is private and "
            f"{_who()} has no access: {_words(error)}",
            next_step=f"correct the name, or set HF_TOKEN to a token that may read the {place.kind}",
        ) from error
    except RevisionNotFoundError as error:
        raise SpecError(
            "SourceInvalid",
            f"cannot read {uri}: {place.kind} {place.repository} has no revision {place.revision!r}",
            next_step=f"name a branch, a tag or a commit of the {place.kind} after @, or leave it out for main",
        ) from error
    except OfflineModeIsEnabled as error:
        raise SpecError(
            "SourceNotReadable", f"cannot read {uri}: HF_HUB_OFFLINE is set", next_step="unset HF_HUB_OFFLINE"
        ) from error
    except HFValidationError as error:
        raise SpecError("SpecInvalid", f"{uri!r}: {error}", next_step="write hf://datasets/org/name/path") from error
    except HfHubHTTPError as error:
        if isinstance(error, DisabledRepoError) or error.response.status_code in (401, 403):
            raise SpecError(
                "SourceNotReadable",
                f"cannot read {uri}: the Hub refuses {_who()}: {_words(error)}",
                next_step=f"set HF_TOKEN to a valid token that may read the {place.kind}",
            ) from error
        raise _failed(uri, f"{hf_endpoint()}: {_words(error)}") from error
    except (httpx.HTTPError, httpx.InvalidURL, BadAnswer, OSError) as error:
        raise _failed(uri, words_of(error, hf_endpoint())) from error


def _failed(uri: str, words: str) -> TemporaryError:
    return TemporaryError(
        "StorageFailed",
        f"cannot read {uri}: {words}",
        next_step="start the same command again; finished work is kept. If it never works, check the network and "
        "HF_ENDPOINT",
    )


def _who() -> str:
    """Who asks, without the secret."""
    if get_token() is None:
        return "an anonymous request (no token was found)"
    return "the token in HF_TOKEN" if os.environ.get("HF_TOKEN") else "the token that `hf auth login` saved"


def _words(error: HfHubHTTPError) -> str:
    """The Hub's own words, without the address of the request (that of a store is a secret for a while)."""
    response = error.response
    return f"{response.status_code} {error.server_message or response.reason_phrase}"[:500]
