"""Opens the store of a URI: the only place that maps schemes to clients."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from tokenization_worker.errors import SpecError
from tokenization_worker.storage.base import Store
from tokenization_worker.storage.schemes import plain_path, scheme_of


def open_store(uri: str) -> Store:
    """The store rooted at `uri` (a folder or a bucket prefix): one per process. Opening does no I/O.

    A relative path means the folder that the process is in now.
    """
    return _open_store(str(plain_path(uri)) if scheme_of(uri) == "file" else uri)


@cache
def _open_store(uri: str) -> Store:
    scheme = scheme_of(uri)
    make = _MAKERS.get(scheme)
    if make is None:
        raise SpecError(
            "SpecInvalid",
            f"output.uri: cannot write to {uri!r}: scheme {scheme!r} is read-only or unknown",
            next_step="write to a local path or to gs://bucket/prefix",
        )
    return make(uri)


def _local_store(uri: str) -> Store:
    from tokenization_worker.storage.local.store import LocalStore

    return LocalStore(Path(uri))


def _gcs_store(uri: str) -> Store:
    from tokenization_worker.storage.gcs.store import GcsStore

    return GcsStore(uri)


_MAKERS: dict[str, Callable[[str], Store]] = {"file": _local_store, "gs": _gcs_store}


def serve_stores(scheme: str, make: Callable[[str], Store]) -> None:
    """Let `make` open the stores of a scheme in this process from now on: for programs that bring one of their own."""
    _MAKERS[scheme] = make
    _open_store.cache_clear()
