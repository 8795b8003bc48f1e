"""Opens a source file only in its planned version."""

from __future__ import annotations

from tokenization_worker.readers.document_batch import FileSlice
from tokenization_worker.storage.base import ByteReader
from tokenization_worker.storage.source_file import SourceFile
from tokenization_worker.storage.sources import open_as_listed


def open_planned(source: FileSlice) -> ByteReader:
    """The file's bytes, provided that it is still the file that was planned, untouched since this start has listed it.

    So every receipt of a start tells of the file as it was listed: it may be believed whatever becomes of the file.
    """
    planned = SourceFile(source.uri, source.size, source.version, source.pin, source.inode, source.ctime_ns)
    return open_as_listed(planned, "since this run listed it")
