"""The versions of the libraries that decide bytes, as one text such as `orjson 3.13.0, tiktoken 0.14.0`.

It stands in epochs, receipts and the index, never in a key or a digest. Two texts are compared by what both name: a
library that one side does not have decided nothing there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version

PARSERS = ("orjson", "pyarrow")
"""Libraries that decide what a document's text is; pyarrow that of Parquet files alone."""

_ENGINES = frozenset({"fastokens"})
"""Pinned, and never the authority: an engine of another version is checked against the reference by its check."""


def describe_versions(libraries: Mapping[str, str], *, has_parquet: bool = True) -> str:
    """Those of a tokenizer's `libraries`, and of the parsers, sorted by name; pyarrow's only where it `has_parquet`."""
    versions = join_versions({**_parser_versions(), **libraries})
    return versions if has_parquet else without_pyarrow(versions)


def has_pyarrow() -> bool:
    """Whether it is installed; it is not imported."""
    return "pyarrow" in _parser_versions()


def without_pyarrow(versions: str) -> str:
    """The text for a source without Parquet, about which pyarrow decides nothing."""
    return join_versions({name: found for name, found in _parse(versions).items() if name != "pyarrow"})


def join_versions(found: Mapping[str, str]) -> str:
    """The text for versions by name."""
    return ", ".join(f"{name} {found[name]}" for name in sorted(found))


def find_changes(was: str, now: str) -> list[tuple[str, str, str]]:
    """Libraries whose version is not what it was: name, version then, version now. Engines do not count."""
    before, after = _parse(was), _parse(now)
    return [
        (name, before[name], after[name])
        for name in sorted(before.keys() & after.keys() - _ENGINES)
        if before[name] != after[name]
    ]


def same_as_any(versions: str, others: Iterable[str]) -> bool:
    """Whether one of `others` differs from `versions` in no library."""
    return any(not find_changes(other, versions) for other in others)


def describe_changes(was: str, now: str) -> tuple[str, str]:
    """The versions that differ, then and now, in words."""
    changes = find_changes(was, now)
    return ", ".join(f"{name} {old}" for name, old, _ in changes), ", ".join(
        f"{name} {new}" for name, _, new in changes
    )


def install_versions(was: str, now: str) -> str:
    """The command that installs the versions of before where they differ."""
    return "pip install " + " ".join(f"'{name}=={old}'" for name, old, _ in find_changes(was, now))


def _parse(text: str) -> dict[str, str]:
    words = (part.strip().partition(" ") for part in text.split(",") if part.strip())
    return {name: found for name, _, found in words}


@cache
def _parser_versions() -> dict[str, str]:
    found = {}
    for name in PARSERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue  # pyarrow is an extra
    return found
