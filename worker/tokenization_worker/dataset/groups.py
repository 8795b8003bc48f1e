"""The parts of a split by the name of their group, and the error that names the groups that there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from tokenization_worker.errors import SpecError

Part = TypeVar("Part")


class GroupUnknown(SpecError, KeyError):
    """A split has no group of that name: also a `KeyError`, as of any mapping."""


class Groups(Mapping[str, Part], Generic[Part]):
    """The parts of the split `split`, in the order of the source's groups; none where groups are not in paths."""

    def __init__(self, split: str, parts: Mapping[str, Part]) -> None:
        self._split = split
        self._parts = dict(parts)

    def __getitem__(self, name: str) -> Part:
        """The part of the group `name`; raises `GroupUnknown`, a `KeyError`, which names those that there are."""
        try:
            return self._parts[name]
        except KeyError:
            step = f"one of: {', '.join(self._parts)}"
            if not self._parts:
                step = "read the split itself; a job with {group} in output.path gives it a part of each group"
            message = f"split {self._split!r} has no group {name!r}"
            raise GroupUnknown("GroupUnknown", message, next_step=step) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __repr__(self) -> str:
        return repr(self._parts)
