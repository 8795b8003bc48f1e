"""Checks the list of source files: refuses an output among them, and warns of empty files and links."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import numpy as np

from tokenization_worker.api.data import DataSpec, SourceFormat
from tokenization_worker.errors import SpecError
from tokenization_worker.events import Warned, Watcher
from tokenization_worker.messages.counts import counted
from tokenization_worker.output.layout import INDEX, SHARDS_TABLE
from tokenization_worker.output.naming import name_files
from tokenization_worker.readers.detection.detect import may_be_empty
from tokenization_worker.storage.source_file import SourceFile
from tokenization_worker.storage.sources import closed_folders, is_same_file, selects


def refuse_output_in_source(data: DataSpec, files: tuple[SourceFile, ...]) -> None:
    """Raise where source and output of a job overlap: the next start would find the output's files in the source."""
    output = data.output
    split, group = output.splits[0].name, (data.path_groups or ("",))[0]
    named = name_files(output.path, output.file_kinds, split=split, index=0, shard=0, group=group)
    refuse_overlap(output.uri, [*(name.path for name in named), SHARDS_TABLE, INDEX], data.source.uris, files)


def refuse_overlap(uri: str, paths: Iterable[str], patterns: Iterable[str], files: Iterable[SourceFile]) -> None:
    """Raise where a pattern of the source would match one of `paths` at the output `uri`, or a file lies there."""
    inside = uri.rstrip("/") + "/"
    for pattern, path in product(patterns, list(paths)):
        if selects(pattern, inside + path):
            raise SpecError(
                "SpecInvalid",
                f"output.uri: {uri} lies in the source: {pattern} would match {inside}{path}",
                next_step="write outside of the source, or narrow source.uris",
            )
    for file in files:
        if file.uri.startswith(inside):
            raise SpecError(
                "SpecInvalid",
                f"output.uri: {uri} holds a source file: {file.uri}",
                next_step="write outside of the source, or narrow source.uris",
            )


def warn_of_empty_files(files: tuple[SourceFile, ...], format: SourceFormat, watch: Watcher) -> None:
    """Warn of files of 0 bytes that count as read; those that cannot be valid are found corrupt by their reader."""
    empty = [file.uri for file in files if not file.size and may_be_empty(file.uri, format)]
    if empty:
        watch(Warned(f"{counted(len(empty), 'file')} of 0 bytes, which hold no document, the first: {empty[0]}"))


def warn_of_closed_folders(patterns: Iterable[str], output: str, watch: Watcher) -> None:
    """Warn of the folder `lost+found` of a volume, which listings leave out where this user may not list it."""
    for folder in closed_folders(patterns, output):
        watch(
            Warned(
                f"{folder} is left out, because this user may not list it. It holds what a repair of the file system "
                "found; if your files are there, move them to another folder"
            )
        )


def warn_of_links(files: tuple[SourceFile, ...], watch: Watcher) -> None:
    """Warn of files that the source has under several names: each name is a file, with all its documents."""
    inodes = np.array([file.inode for file in files], dtype=np.uint64)
    values, counts = np.unique(inodes[inodes > 0], return_counts=True)
    if not (counts > 1).any():
        return
    shared = set(values[counts > 1].tolist())
    first: dict[tuple[int, int, str], str] = {}
    links: list[tuple[str, str]] = []
    for file in files:
        if file.inode in shared:
            uri = first.setdefault((file.inode, file.ctime_ns, file.version), file.uri)
            if uri != file.uri and is_same_file(uri, file.uri):
                links.append((file.uri, uri))
    if links:
        watch(
            Warned(
                f"source files that are links to other source files: {len(links):,}, the first: {links[0][0]} is also "
                f"{links[0][1]}. Both names are read, so that the dataset has their documents twice; narrow "
                "source.uris to one of them if that is not wanted"
            )
        )
