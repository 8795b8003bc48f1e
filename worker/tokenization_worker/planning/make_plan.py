"""Makes a plan: inspects files larger than a range, and cuts all files into ranges."""

from __future__ import annotations

from collections.abc import Callable

from tokenization_worker.api.changes import asked_fields
from tokenization_worker.api.data import SourceFormat, TextSpec
from tokenization_worker.api.keys import plan_id
from tokenization_worker.host.parallel import MapAhead
from tokenization_worker.output.plan_file import Cut, Plan
from tokenization_worker.planning.cut import Inside, choose_range_bytes, cut_files
from tokenization_worker.planning.prepare import Prepared
from tokenization_worker.planning.scattering import choose_scattering, digest_of
from tokenization_worker.readers.detection.detect import kind_of_source
from tokenization_worker.readers.detection.sizes import estimate_content_bytes
from tokenization_worker.readers.document_batch import Compression, CorruptFileError, FileKind, ReadOptions
from tokenization_worker.readers.lines.record_splitter import can_cut
from tokenization_worker.readers.open import record_separator
from tokenization_worker.readers.parquet.file import parquet_row_groups
from tokenization_worker.storage.base import ByteReader
from tokenization_worker.storage.source_file import SourceFile, source_changed
from tokenization_worker.storage.sources import connections_to, find_touched_files, open_as_listed

_LISTED = "since it was listed"


def make_plan_of(prepared: Prepared, slots: int | None) -> Plan:
    """Cut the files. `slots`: processes that ranges should keep busy; None: take rangeBytes as it is."""
    cut, kinds = cut_source(prepared.data, prepared.files, prepared.limits.range_bytes, slots)
    scattering = choose_scattering(prepared)
    return Plan(
        plan_id=plan_id(prepared.data_key, cut.digest() + digest_of(scattering)),
        data_key=prepared.data_key,
        run_key=prepared.run_key,
        data=prepared.canonical,
        files=prepared.files,
        kinds=kinds,
        cut=cut,
        asked=asked_fields(prepared.job),
        scattering=scattering,
    )


def cut_source(
    data: TextSpec, files: tuple[SourceFile, ...], range_bytes: int, slots: int | None
) -> tuple[Cut, tuple[FileKind | None, ...]]:
    """The ranges of `files`, and the kinds of those that had to be looked into; `slots` as for `make_plan_of`."""
    range_bytes = choose_range_bytes(range_bytes, sum(file.size for file in files), slots)
    large = [file for file in files if file.size > range_bytes]
    with MapAhead(_inspector(data), large, connections_to(data.source.uris)) as inspect_file:
        return cut_files(files, range_bytes, inspect_file)


def _inspector(data: TextSpec) -> Callable[[SourceFile], Inside]:
    options = ReadOptions.of(data)

    def inspect_file(file: SourceFile) -> Inside:
        found = inspect(file)
        for was, now in find_touched_files([file]):  # a plan is for ever
            raise source_changed(was, now, _LISTED)
        return found

    def inspect(file: SourceFile) -> Inside:
        kind = kind_of_source(file.uri, file.size, options.format, _strict_opener(file))
        if kind is None:  # corrupt: the reader will say how
            return Inside(None)
        if kind.format is SourceFormat.PARQUET:
            return Inside(kind, row_groups=_row_group_bytes(file))
        separator = record_separator(kind.format, options)
        if separator is None or not can_cut(separator):
            return Inside(kind)
        if kind.compression is Compression.NONE:
            return Inside(kind, cuttable=True)
        size = estimate_content_bytes(file.uri, file.size, kind.compression, _strict_opener(file))
        return Inside(kind, content_bytes=size)

    return inspect_file


def _strict_opener(file: SourceFile) -> Callable[[str], ByteReader]:
    return lambda _: open_as_listed(file, _LISTED)


def _row_group_bytes(file: SourceFile) -> tuple[int, ...]:
    """Stored bytes of each row group; none for a corrupt footer, which the reader will describe."""
    stream = open_as_listed(file, _LISTED)
    try:
        return tuple(group.stored_bytes for group in parquet_row_groups(stream))
    except CorruptFileError:
        return ()
    finally:
        stream.close()
