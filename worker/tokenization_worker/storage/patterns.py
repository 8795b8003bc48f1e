"""Matches the patterns of `source.uris`. Pure: names only, no I/O.

`*` matches within one path component, `**` over any number of them; a pattern without wildcards is a folder with
all below it. Names that begin with `.` or `_` are skipped below the folder (markers, temporary files).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_HIDDEN = (".", "_")


@dataclass(frozen=True, slots=True)
class Pattern:
    """The folder (ends in a slash) that holds all that a pattern selects, and what their rest must match."""

    folder: str
    _file: re.Pattern[str]
    _folders: tuple[re.Pattern[str], ...]
    _is_deep: bool

    @classmethod
    def parse(cls, pattern: str) -> Self:
        if "*" not in pattern:
            return cls(pattern.rstrip("/") + "/", compile_glob("**"), (), True)
        folder = pattern[: pattern.index("*")].rpartition("/")[0] + "/"
        rest = pattern[len(folder) :]
        flat = rest.partition("**")[0].split("/")[:-1]
        return cls(folder, compile_glob(rest), tuple(map(compile_glob, flat)), "**" in rest)

    @property
    def is_flat(self) -> bool:
        """Whether all that is selected lies in `folder` itself, in no folder below it."""
        return not self._is_deep and not self._folders

    def selects(self, uri: str) -> bool:
        """Whether a file at `uri` would be a file of the source."""
        rest = uri[len(self.folder) :]
        hidden = any(part.startswith(_HIDDEN) for part in rest.split("/"))
        return uri.startswith(self.folder) and bool(rest) and not hidden and self._file.fullmatch(rest) is not None

    def may_enter(self, uri: str) -> bool:
        """Whether the folder at `uri`, below one that may be entered, may hold a file that is selected."""
        parts = uri[len(self.folder) :].split("/")
        if parts[-1].startswith(_HIDDEN):
            return False
        if len(parts) > len(self._folders):
            return self._is_deep
        return self._folders[len(parts) - 1].fullmatch(parts[-1]) is not None


def compile_glob(glob: str) -> re.Pattern[str]:
    """The pattern as a regular expression; all but `*` and `**` is literal."""
    parts = []
    position = 0
    while position < len(glob):
        if glob.startswith("**/", position):
            parts.append("(?:[^/]+/)*")
            position += 3
        elif glob.startswith("**", position):
            parts.append(".*")
            position += 2
        elif glob[position] == "*":
            parts.append("[^/]*")
            position += 1
        else:
            parts.append(re.escape(glob[position]))
            position += 1
    return re.compile("".join(parts), re.DOTALL)
