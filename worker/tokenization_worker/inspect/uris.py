"""Resolves the output that a command gets as its argument."""

from __future__ import annotations

import os

from tokenization_worker.storage.schemes import plain_path, scheme_of


def absolute_uri(uri: str | os.PathLike[str]) -> str:
    """`uri` as jobs resolve it: local paths absolute, no slash at the end."""
    uri = os.fspath(uri)
    return str(plain_path(uri)) if scheme_of(uri) == "file" else uri.rstrip("/")
