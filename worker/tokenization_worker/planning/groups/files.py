"""Lists the files of a source in order, each with its group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tokenization_worker.api.data import TextSpec
from tokenization_worker.errors import SpecError
from tokenization_worker.storage.source_file import SourceFile
from tokenization_worker.storage.sources import file_identity, list_source, pins_of


def list_files(data: TextSpec, pins: Mapping[str, str] | None = None) -> tuple[SourceFile, ...]:
    """All source files in order, each with its group; raises `SpecError` for one that two groups match."""
    groups = data.source.groups
    if not groups:
        return tuple(list_source(data.source.uris, pins))
    owners: dict[object, tuple[str, str]] = {}
    files: list[SourceFile] = []
    commits = dict(pins or {})
    for group in groups:
        listed = list_source(group.uris, commits, field=f"source.groups, group {group.name}")
        commits |= pins_of(listed)
        for file in listed:
            owner, uri = owners.setdefault(file_identity(file), (group.name, file.uri))
            if owner != group.name:
                raise SpecError(
                    "SourceInvalid",
                    f"source.groups: the groups {owner} and {group.name} both match {uri}",
                    next_step="narrow the uris of one of them: a file belongs to one group",
                )
            files.append(replace(file, group=group.name))
    return tuple(files)
