"""Reads the text column of a Parquet file in parts of a few rows.

Column chunks are read through a small buffer and a few rows at a time, as many as `page_sizes` allows, so memory
follows the size of pages, and not of what they repeat. Not bounded is one page: Parquet decompresses a page whole, and
a writer may put any document into it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tokenization_worker.readers.document_batch import WHAT_TO_DO
from tokenization_worker.readers.encrypted_parquet import encrypted_file, is_about_keys
from tokenization_worker.readers.parquet.file import SizedFile, load_pyarrow, parquet_file, require_columns
from tokenization_worker.readers.parquet.find_column import FoundColumn
from tokenization_worker.readers.parquet.page_sizes import MOST_ROWS, POINTERS_AT_ONCE, REPEATED_BYTES, Chunk, PageWalk

_PART_BYTES = 1 << 20
"""Of text that is handed on at once."""


class TextColumn:
    """The text column of a file, a row group at a time, each batch as large as its pages allow."""

    def __init__(self, file: Any, source: SizedFile, found: FoundColumn) -> None:
        self._file = file
        self._source = source
        self._path = found.path
        self._number = found.number
        types = load_pyarrow().types
        self._is_dictionary = types.is_dictionary(found.type)
        self._is_null = types.is_null(found.type)
        self._dictionary_file: Any = None

    def chunk(self, group: int) -> Chunk:
        """Where the column's pages of a row group are; raises `CorruptFileError` where they are encrypted."""
        try:
            require_columns(self._file, group, [self._number])
        except OSError as error:
            if not is_about_keys(error):
                raise
            raise encrypted_file(f"column {'.'.join(self._path)!r}") from error
        column = self._file.metadata.row_group(group).column(self._number)
        first = min(filter(None, (column.dictionary_page_offset, column.data_page_offset)), default=0)
        return Chunk(
            first,
            first + column.total_compressed_size,
            column.data_page_offset - first,
            column.encodings,
            column.num_values,
        )

    def parts(
        self, group: int, max_document_bytes: int, max_rows: int = MOST_ROWS, *, may_keep: bool = True
    ) -> Iterator[Any]:
        """The rows of a row group as `pyarrow.LargeBinaryArray` or `SharedTexts`, some MiB or one row at a time.

        `may_keep`: values may stay in the column's dictionary. Where a kept dictionary has equal values, pyarrow drops
        all but one of them and leaves the pointers as they are. Such a row group is decoded instead; if the column's
        Arrow type is a dictionary, pyarrow always keeps it, and the file is refused.
        """
        pa = load_pyarrow()
        chunk = self.chunk(group)
        is_kept = may_keep and chunk.is_mostly_dictionary
        keeps_dictionary = not self._is_null and (self._is_dictionary or is_kept)
        file = self._with_dictionary() if keeps_dictionary else self._file
        walk = PageWalk(chunk, keeps_dictionary=keeps_dictionary)
        most = POINTERS_AT_ONCE if keeps_dictionary else max_rows
        self._source.pages = walk
        row = 0
        batches = file.reader.iter_batches(  # by number: two columns may have the same path in the file's schema
            walk.rows_at_once(0, most), row_groups=[group], column_indices=[self._number], use_threads=False
        )
        for batch in batches:
            column = batch.column(batch.schema.get_field_index(self._path[0]))
            if len(self._path) > 1:
                column = pa.compute.struct_field(column, list(self._path[1:]))
            if keeps_dictionary and chunk.has_pointers and len(column.dictionary) < walk.dictionary_values:
                if self._is_dictionary or row:
                    step = "write the column again as strings"
                    raise pa.ArrowInvalid(f"the dictionary of a column has equal values{WHAT_TO_DO}{step}")
                yield from self.parts(group, max_document_bytes, max_rows, may_keep=False)
                return
            yield from _decode(column, max_document_bytes, max_rows)
            row += len(batch)
            del batch, column  # or they would be there beside the next ones
            file.reader.set_batch_size(walk.rows_at_once(row, most))

    def _with_dictionary(self) -> Any:
        """The file, opened once more so that its values stay in dictionaries."""
        if self._is_dictionary:
            return self._file
        if self._dictionary_file is None:
            options = {"metadata": self._file.metadata, "read_dictionary": [".".join(self._path)]}
            self._dictionary_file = parquet_file(self._source, **options)
        return self._dictionary_file


class SharedTexts(NamedTuple):
    """Rows that all are documents; those that point to one value share it. `size_bytes` are of UTF-8."""

    texts: list[str]
    size_bytes: int


def _decode(column: Any, max_document_bytes: int, max_rows: int) -> Iterator[Any]:
    """The values of a column in parts of at most `_PART_BYTES` and `max_rows`, but at least one row each."""
    pa = load_pyarrow()
    if not len(column):
        return
    is_dictionary = pa.types.is_dictionary(column.type)
    if is_dictionary:
        _require_values(column)
    else:
        column = column.cast(pa.large_binary())
    repeats = is_dictionary and len(column) > len(column.dictionary)  # else its values are more than its rows
    values = _shared_texts(column, max_document_bytes) if repeats else None
    ends = np.cumsum(_pointed_sizes(column), dtype=np.int64) if is_dictionary else value_ends(column)[1:]
    before = 0 if is_dictionary else int(value_ends(column)[0])
    begin = 0
    while begin < len(column):
        fitting = int(np.searchsorted(ends, before + _PART_BYTES, side="right"))
        end = min(max(fitting, begin + 1), begin + max_rows, len(column))
        part = column.slice(begin, end - begin)
        if values is not None:
            yield SharedTexts(values[part.indices.to_numpy()].tolist(), int(ends[end - 1]) - before)
        else:
            yield part.dictionary_decode().cast(pa.large_binary()) if is_dictionary else part
        before, begin = int(ends[end - 1]), end


def _require_values(column: Any) -> None:
    """Raise pyarrow's error where a row of a dictionary array points to no value, which pyarrow itself lets pass."""
    pa = load_pyarrow()
    pointers = pa.compute.min_max(column.indices).as_py()
    if pointers["min"] is not None and not 0 <= pointers["min"] <= pointers["max"] < len(column.dictionary):
        raise pa.ArrowInvalid(f"a row points outside of its dictionary of {len(column.dictionary)} values")


def _shared_texts(column: Any, max_document_bytes: int) -> Any:
    """The values of a dictionary array, object[n_values], where all are documents and their texts are not too much to
    hold; else None."""
    pa = load_pyarrow()
    values = column.dictionary.cast(pa.large_binary())
    if column.null_count or not len(values) or values.null_count:
        return None
    ends = value_ends(values)
    if ends[-1] - ends[0] > REPEATED_BYTES or np.diff(ends).max() > max_document_bytes:
        return None
    try:
        return values.view(pa.large_string()).to_numpy(zero_copy_only=False)
    except (UnicodeDecodeError, pa.ArrowException):
        return None


def value_ends(column: Any) -> Any:
    """Where the rows of a `LargeBinaryArray` of at least one row begin and end, int64[n_rows + 1]."""
    return np.frombuffer(column.buffers()[1], dtype=np.int64)[column.offset : column.offset + len(column) + 1]


def _pointed_sizes(column: Any) -> Any:
    """Bytes that each row of a dictionary array has when it is decoded, int64[n_rows]; of a null any number."""
    pa = load_pyarrow()
    if not len(column.dictionary):
        return np.zeros(len(column), dtype=np.int64)
    sizes = pa.compute.binary_length(column.dictionary.cast(pa.large_binary())).fill_null(0).to_numpy()
    return sizes[column.indices.fill_null(0).to_numpy(zero_copy_only=False)]
