"""Opens a Parquet file over a stream: its footer and its row groups, with corruption mapped to one error.

pyarrow is imported when the first Parquet file is read. Damage in anything that is read raises `CorruptFileError`;
errors of the store pass through unchanged. More data than pyarrow or this machine can hold is no damage: it raises
`MemoryError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from tokenization_worker.errors import SpecError
from tokenization_worker.messages.extras import install_command
from tokenization_worker.readers.document_batch import CorruptFileError, FileOutcome
from tokenization_worker.readers.encrypted_parquet import encrypted_file, is_about_keys
from tokenization_worker.readers.parquet.page_sizes import PageWalk
from tokenization_worker.storage.base import ByteReader

_BUFFER_BYTES = 1 << 20
"""Stored bytes of a column chunk asked for at a time."""


class RowGroup(NamedTuple):
    """What a cut has to know of a row group: its rows, and the stored bytes of all its columns."""

    rows: int
    stored_bytes: int


def parquet_row_groups(stream: ByteReader) -> list[RowGroup]:
    """The row groups of a file from its footer; raises `CorruptFileError`."""
    size = stream.seek(0, 2)
    with open_parquet(stream, size) as (file, _):
        return [row_group_of(file, size, index) for index in range(file.metadata.num_row_groups)]


@cache
def load_pyarrow() -> Any:
    """pyarrow, with the memory of the system's allocator; raises `SpecError` where it is not installed."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise SpecError(
            "SourceInvalid",
            "a source file is Parquet, and pyarrow is not installed",
            next_step=install_command("parquet"),
        ) from error
    pa: Any = pyarrow
    pa.set_memory_pool(pa.system_memory_pool())
    return pa


class SizedFile:
    """The stream as pyarrow wants files: whole reads, a known size, and the store's own error kept."""

    def __init__(self, stream: ByteReader, size: int) -> None:
        self._stream = stream
        self._stream_position = -1
        self._size = size
        self._position = 0
        self.closed = False
        self.error: BaseException | None = None
        self.taken = 0
        self.pages: PageWalk | None = None

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        missing = self._size - self._position if size < 0 else size
        parts = []
        try:
            if self._stream_position != self._position:
                self._stream.seek(self._position)
            while missing > 0 and (part := self._stream.read(missing)):
                parts.append(part)
                missing -= len(part)
        except BaseException as error:  # kept, and raised again: whatever the store raises
            self.error = error
            raise
        data = b"".join(parts)
        if self.pages is not None:
            self.pages.feed(self._position, data)
        self._position += len(data)
        self._stream_position = self.taken = self._position
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


@contextmanager
def open_parquet(stream: ByteReader, size: int) -> Iterator[tuple[Any, SizedFile]]:
    """A `pyarrow.parquet.ParquetFile` and what it reads; its errors in the block become `CorruptFileError`."""
    pa = load_pyarrow()
    source = SizedFile(stream, size)
    try:
        with parquet_file(source) as file:
            yield file, source
    except pa.ArrowCapacityError as error:
        raise MemoryError(f"Parquet: {error}") from error
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: names that are not UTF-8
        if source.error is not None:
            raise source.error from None
        if isinstance(error, MemoryError):  # says more about this machine than about the file
            raise
        if is_about_keys(error):
            raise encrypted_file("the file") from error
        detail = f"Parquet: {str(error).strip().removesuffix('.')}"
        raise CorruptFileError(FileOutcome.CORRUPT_FILE, source.taken, detail) from error


def parquet_file(source: SizedFile, **options: Any) -> Any:
    """A `pyarrow.parquet.ParquetFile` that reads little at a time and checks its pages; its errors are pyarrow's."""
    pa = load_pyarrow()
    return pa.parquet.ParquetFile(
        pa.PythonFile(source, mode="r"),
        pre_buffer=False,
        buffer_size=_BUFFER_BYTES,
        page_checksum_verification=True,
        arrow_extensions_enabled=False,
        **options,
    )


def row_group_of(file: Any, size: int, index: int) -> RowGroup:
    """What the footer says of a row group; an equal share of the file's `size` bytes where it cannot be asked."""
    group = file.metadata.row_group(index)
    try:
        require_columns(file, index)
    except (load_pyarrow().ArrowException, OSError):
        return RowGroup(group.num_rows, size // file.metadata.num_row_groups)
    stored = sum(group.column(column).total_compressed_size for column in range(group.num_columns))
    return RowGroup(group.num_rows, stored)


def require_columns(file: Any, group: int, columns: Sequence[int] | None = None) -> None:
    """Raise pyarrow's error where a row group has metadata of columns that pyarrow cannot use; None: of any column.

    To be asked first: pyarrow's own view of such metadata aborts the process, while a reader that is to read no rows
    fails in words. It reads nothing of the file, and takes 3 us a column (2026-11-29).
    """
    next(file.reader.iter_batches(0, row_groups=[group], column_indices=columns, use_threads=False), None)
