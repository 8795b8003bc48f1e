"""Opens a source file only in its planned version, and confirms that a corrupt one is corrupt."""

from __future__ import annotations

from tokenization_worker.errors import TemporaryError
from tokenization_worker.readers.document_batch import CorruptFileError, FileSlice, ReadOptions
from tokenization_worker.readers.open import read_documents
from tokenization_worker.storage.base import ByteReader
from tokenization_worker.storage.source_file import SourceFile
from tokenization_worker.storage.sources import open_as_listed


def open_planned(source: FileSlice) -> ByteReader:
    """The file's bytes, provided that it is still the file that was planned, untouched since this start has listed it.

    So every receipt of a start tells of the file as it was listed: it may be believed whatever becomes of the file.
    """
    planned = SourceFile(source.uri, source.size, source.version, source.pin, source.inode, source.ctime_ns)
    return open_as_listed(planned, "since this run listed it")


def require_corrupt_again(source: FileSlice, options: ReadOptions, damage: CorruptFileError) -> None:
    """Raise `TemporaryError` unless the file is corrupt when it is read again, too.

    What was changed on its way here looks like a corrupt file, and a verdict is for ever.
    """
    try:
        for _ in read_documents(source, options, lambda _: open_planned(source)):
            pass
    except CorruptFileError as again:
        if again.outcome == damage.outcome:
            return
    raise TemporaryError(
        "StorageFailed",
        f"{source.uri}: corrupt when it was read first ({damage}), but intact or corrupt in another way when it "
        "was read again",
        next_step="start the same command again; if this error comes back, check the disk or the network",
    )
