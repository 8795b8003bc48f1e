"""The paths of the files of shards, in every format; split and number come from `planning.splits`.

`layout` knows templates, `formats` knows suffixes; here they meet.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from tokenization_worker.api.data import GROUP_PLACEHOLDER, PARTS, DataSpec, DType, has_uneven_shards
from tokenization_worker.errors import ChangedError
from tokenization_worker.formats.base import ShardShape, StoredFile
from tokenization_worker.formats.dtypes import NUMPY_DTYPES
from tokenization_worker.formats.registry import FORMATS, folder_index_of, format_of, kind_of
from tokenization_worker.output import layout
from tokenization_worker.storage.base import Entry, NotFound, Store


def require_known_formats(names: Iterable[str], uri: str, path: str) -> None:
    """Raise `ChangedError` if the record at `path` names a format that this version does not have."""
    unknown = [name for name in names if name not in FORMATS]
    if unknown:
        raise ChangedError(
            "OutputConflict",
            f"{uri}/{path} has shards in the format {', '.join(unknown)}; this program reads {', '.join(FORMATS)}",
            next_step="use the version of this program that wrote it",
        )


class FileName(NamedTuple):
    """The place of one file of a shard: file `number` of its format."""

    format: str
    number: int
    path: str


def name_files(
    path: str, kinds: Sequence[str], *, split: str, index: int, shard: int, group: str = ""
) -> tuple[FileName, ...]:
    """The files of a shard, the main file of the first format first; `path` is `output.path`, `kinds` are those of
    `OutputSpec.file_kinds`.

    Raises `SpecError` for a number that does not fit the path.
    """
    return tuple(
        FileName(name, number, layout.shard_path(template, suffix, split=split, index=index, shard=shard, group=group))
        for name, number, template, suffix in _kinds(path, kinds)
    )


def _kinds(path: str, kinds: Sequence[str]) -> Iterator[tuple[str, int, str, str]]:
    """Kind, number, template and suffix of each file of a shard. An only format has no folder beside parts either."""
    n_formats = sum(name != PARTS for name in kinds)
    for name in kinds:
        template = layout.template_of(path, name, among=n_formats + (name == PARTS))
        for number, suffix in enumerate(kind_of(name).suffixes):
            yield name, number, template, suffix


def _names(path: str, kinds: Sequence[str]) -> Iterator[tuple[str, int, str, str]]:
    """As `_kinds`, and after a format's files the index of the folder that they are in, where it has one."""
    for name, number, template, suffix in _kinds(path, kinds):
        yield name, number, template, suffix
        if (index := folder_index_of(name)) is not None:
            yield name, number + 1, layout.beside(template, index.name), ""


def list_named(
    store: Store,
    path: str,
    kinds: Sequence[str],
    splits: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
) -> Iterator[Entry]:
    """The files that have the name of a shard's file of these kinds, or of a folder's index; `path`
    is `output.path`.

    `splits`, `groups`: of these alone, with the digits that the path gives them; None: of any, with any digits.
    """
    matchers: dict[str, list[re.Pattern[str]]] = {}
    for _, _, template, suffix in _names(path, kinds):
        matcher = layout.shard_matcher(template, (suffix,), splits, groups)
        matchers.setdefault(layout.static_prefix(template), []).append(matcher)
    return (
        entry
        for prefix, patterns in matchers.items()
        for entry in store.list(prefix)
        if any(pattern.fullmatch(entry.path) for pattern in patterns)
    )


def planned_shard_tokens(output: Mapping[str, Any]) -> int:
    """Of a full shard, padding included; `output` has the canonical fields of a plan or an index."""
    shards = output["shards"]
    return int(shards["sequences"] * output["sequence"]["length"] if "sequence" in output else shards["tokens"])


def _most_tokens(shard_tokens: int, *, are_uneven: bool) -> int:
    """Of a shard; an uneven one has as much padding as packing gives it, and its first document may begin before its
    window."""
    return sys.maxsize if are_uneven else shard_tokens


def planned_streams(data: Mapping[str, Any]) -> int:
    """How many streams there are: of each split by share, and of each group in paths."""
    splits = data["output"]["splits"]
    return (len(splits) if is_by_hash(splits) else 1) * max(1, len(planned_groups(data)))


def is_by_hash(splits: Sequence[Mapping[str, Any]]) -> bool:
    """Whether documents are shared out among the splits, so that each split is a stream of its own."""
    return len(splits) > 1 and splits[0]["share"] is not None


def planned_groups(data: Mapping[str, Any]) -> tuple[str, ...]:
    """The groups in paths, from the canonical data of a plan or an index; () where paths have none."""
    if GROUP_PLACEHOLDER not in data["output"]["path"]:
        return ()
    return tuple(str(group["name"]) for group in data["source"]["groups"])


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of a plan's shards, and what they hold: at most `shard_tokens` tokens of `dtype`, padding included.

    `path`: `output.path`; `kinds`: those of `OutputSpec.file_kinds`; `row_length`: 0 where there are no rows. `groups`:
    those in paths.
    """

    path: str
    kinds: tuple[str, ...]
    splits: tuple[str, ...]
    dtype: DType
    shard_tokens: int
    row_length: int
    groups: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: DataSpec, dtype: DType) -> Self:
        """`dtype`: the resolved one."""
        output = data.output
        splits = tuple(split.name for split in output.splits)
        row_length = 0 if output.sequence is None else output.sequence.length
        most = _most_tokens(output.shard_tokens, are_uneven=output.has_uneven_shards)
        return cls(output.path, output.file_kinds, splits, dtype, most, row_length, data.path_groups)

    @classmethod
    def planned(cls, data: dict[str, Any]) -> Self:
        """From the canonical data fields of a plan; raises `KeyError`, `TypeError` or `ValueError` for others."""
        output = data["output"]
        formats = tuple(str(name) for name in output["formats"])
        for name in formats:
            format_of(name)  # raises for one that this version does not have
        splits = tuple(str(split["name"]) for split in output["splits"])
        kinds = (*formats, PARTS) if "sequence" in output else formats
        row_length = int(output["sequence"]["length"]) if "sequence" in output else 0
        dtype = DType(output["dtype"])
        groups = planned_groups(data)
        most = _most_tokens(planned_shard_tokens(output), are_uneven=has_uneven_shards(output))
        return cls(str(output["path"]), kinds, splits, dtype, most, row_length, groups)

    @property
    def largest(self) -> ShardShape:
        """What a full shard holds."""
        return self.shape(self.shard_tokens)

    def shape(self, tokens: int, number: int = 0) -> ShardShape:
        """What a shard of so many tokens holds; `number`: within its split and group."""
        return ShardShape(tokens, NUMPY_DTYPES[self.dtype], self.row_length, number)

    def files(self, *, split: str, index: int, shard: int, group: str = "") -> tuple[FileName, ...]:
        """The files of a shard, the main file first; raises `SpecError` for a number that does not fit the template."""
        return name_files(self.path, self.kinds, split=split, index=index, shard=shard, group=group)

    def list_named(self, store: Store, *, strictly: bool = False) -> Iterator[Entry]:
        """The files that have a shard's name: of any split, with any number of digits.

        `strictly`: of these splits alone, with the digits that the path gives them.
        """
        among = (self.splits, self.groups) if strictly else ()
        return list_named(store, self.path, self.kinds, *among)

    def is_given(self, path: str) -> bool:
        """Whether a shard of these splits may get this name."""
        return self._kind_of(path) is not None

    def is_parts(self, path: str) -> bool:
        """Whether this is the name of a file of parts."""
        kind = self._kind_of(path)
        return kind is not None and kind[0] == PARTS

    def why_foreign(self, store: Store, entry: Entry, begun: Collection[int]) -> str | None:
        """Why a file of such a name is none of these shards', in words; None where it may be, or went meanwhile.

        `begun`: how many tokens each shard has that a run may have left without a receipt.
        """
        kind = self._kind_of(entry.path)
        if kind is None:
            return "no shard of this run gets this name"
        name, number = kind
        is_side_file = name == PARTS or number == len(kind_of(name).suffixes)
        shapes = [self.largest] if is_side_file else [self.shape(tokens) for tokens in begun]
        file = StoredFile(store, entry.path, entry.size)
        reason: str | None = "every shard that a run began has one"
        with suppress(NotFound):
            for shape in shapes:
                reason = kind_of(name).why_foreign(number, file, shape)
                if reason is None:
                    break
            return reason
        return None

    def _kind_of(self, path: str) -> tuple[str, int] | None:
        """The kind of a file by its name, and its number among the files of that kind."""
        for name, number, template, suffix in _names(self.path, self.kinds):
            if layout.shard_matcher(template, (suffix,), self.splits, self.groups).fullmatch(path):
                return name, number
        return None
