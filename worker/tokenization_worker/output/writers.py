"""Formats whose bytes a library decides: whether this process writes those that a plan or a dataset has.

The plan holds a fingerprint of what each of these formats wrote where it was made. A driver compares before it decides,
a worker before it builds a shard.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenization_worker.errors import ChangedError
from tokenization_worker.formats.registry import fingerprint, format_of

_SHOWN = 16


def planned_writers(data: Mapping[str, Any]) -> dict[str, str]:
    """By format; `data`: the canonical data fields of a plan or an index."""
    return dict(data["output"].get("writers", {}))


def require_same_writers(uri: str, planned: Mapping[str, str]) -> None:
    """Raise `ChangedError("WriterChanged")` where this process writes other bytes. A second call costs nothing."""
    for name, expected in planned.items():
        found = fingerprint(name)
        if found != expected:
            raise writer_changed(uri, name, expected, found)


def find_changed_writer(uri: str, planned: Mapping[str, str], here: Mapping[str, str]) -> ChangedError | None:
    """The error of the first format that both have, and that is written otherwise here."""
    for name, expected in planned.items():
        found = here.get(name, expected)
        if found != expected:
            return writer_changed(uri, name, expected, found)
    return None


def writer_changed(uri: str, name: str, expected: str, found: str) -> ChangedError:
    library = format_of(name).traits.library
    version = "another library" if library is None else library()
    return ChangedError(
        "WriterChanged",
        f"{uri}: {version} of this process writes other {name} files than the library that began this dataset "
        f"(fingerprint {found[:_SHOWN]}, expected {expected[:_SHOWN]}): its shards would differ from those that exist",
        next_step="start the same command again where that library is installed, such as in the image that began the "
        "dataset, or write to another output.uri",
    )
