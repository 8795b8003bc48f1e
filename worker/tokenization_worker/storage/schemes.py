"""Parses the scheme of an address, and the path that it names on this machine."""

from __future__ import annotations

import re
from pathlib import Path

from tokenization_worker.api.uris import MEANT_AS_URI
from tokenization_worker.errors import SpecError
from tokenization_worker.host.current_folder import needing_current_folder


def scheme_of(uri: str) -> str:
    """`gs`, `s3`, `hf`, ...; `file` for plain paths and `file://`."""
    scheme, separator, _ = uri.partition("://")
    return scheme.lower() if separator else "file"


def plain_path(uri: str) -> Path:
    """The absolute path that a `file://` URI or a plain path names; raises `SpecError` for what is meant as a URI."""
    if not uri.startswith("file://") and re.search(MEANT_AS_URI, uri):
        raise SpecError(
            "SpecInvalid",
            f"{uri!r} is neither a URI nor a path",
            next_step="write gs://bucket/path, or a path as ./path",
        )
    path = uri.removeprefix("file://")
    if path.startswith("//"):  # POSIX lets two slashes at the start be, and a file has one name
        path = "/" + path.lstrip("/")
    with needing_current_folder():
        return Path(path).expanduser().absolute()
