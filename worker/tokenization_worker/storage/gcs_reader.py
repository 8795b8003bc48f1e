"""The bytes of a source file in Google Cloud Storage: ranged reads, the next ones under way while one is used.

What is read ahead is what the caller has announced (`expect`), or the rest of the file once it has been read on
without a gap for `FIRST_BYTES`. So whoever looks at a footer, a head or a column costs no more than that.
Every read is of one generation, whatever is written to the name meanwhile. A file that is read from its start to
its end is compared with its CRC32C before its last bytes are handed out; the service has none for a part of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import google_crc32c
from google.api_core import exceptions
from google.api_core.retry import Retry

from tokenization_worker.errors import ChangedError, TemporaryError
from tokenization_worker.storage.ahead import (
    PATIENCE_S,
    Range,
    RangesAhead,
    describe_range,
    join_ranges,
    split_ranges,
    start_call,
    take_result,
)
from tokenization_worker.storage.gcs_client import (
    READ_SOURCE,
    READ_TIMEOUT_S,
    download_range,
    gcs_bucket,
    map_gcs_errors,
    split_gcs_uri,
)
from tokenization_worker.storage.ranged_reader import FIRST_BYTES, RemoteStream
from tokenization_worker.storage.source_file import SourceFile

BLOCK_BYTES = 4 << 20
"""Bytes of a read of those under way."""

BLOCKS_AHEAD = 4
"""Reads under way at most, of `BLOCK_BYTES` each: with one block in use this is the memory of a stream."""

_GAP_BYTES = 512 << 10
"""Announced ranges that are as near as this are read as one: less than what comes in the time of a request."""


class GcsReader(RemoteStream):
    """One generation of an object as a raw stream; `crc32c` is of all of it, where it is known.

    Raises `ChangedError` when that generation is gone. Memory: `BLOCK_BYTES * (BLOCKS_AHEAD + 1)`, or the size of a
    larger read.
    """

    def __init__(
        self,
        file: SourceFile,
        generation: int,
        crc32c: int | None,
        retry: Retry,
        *,
        timeout_s: float = READ_TIMEOUT_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        super().__init__(file.uri, file.size)
        self._generation = generation
        self._retry = retry
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._unannounced_bytes = 0  # read last in one run, without a word or a guess
        self._ahead = RangesAhead(self._fetch, file.uri, patience_s)
        self._to_begin: Iterator[Range] = iter(())
        self._is_announced = False
        self._crc32c = crc32c
        self._crc32c_so_far = 0
        self._summed_bytes = 0

    def close(self) -> None:
        """What is under way is not waited for: it ends by itself, and is dropped."""
        self._ahead.clear()
        self._to_begin = iter(())
        self._buffer = b""
        super().close()

    def expect(self, ranges: Iterable[tuple[int, int]]) -> None:
        """See `base.ReadsAhead`. What is not in the file (a damaged footer may say anything) is left out."""
        self._read_ahead(Range(max(0, start), min(end, self._size)) for start, end in ranges)
        self._is_announced = True

    def _read_ahead(self, ranges: Iterable[Range]) -> None:
        """Begin to read these, but for what is in the buffer."""
        held = Range(self._buffer_start, self._buffer_end)
        rest = (Range(held.end, end) if held.start <= start < held.end else Range(start, end) for start, end in ranges)
        joined = join_ranges((each for each in rest if each.start < each.end), self._size, _GAP_BYTES)
        self._ahead.clear()
        self._to_begin = split_ranges(joined, BLOCK_BYTES)
        self._begin_more()

    def _begin_more(self) -> None:
        while len(self._ahead) < BLOCKS_AHEAD and (block := next(self._to_begin, None)) is not None:
            self._ahead.begin(block)

    def _fill(self, size: int) -> None:
        """Have the byte at the position in the buffer."""
        position = self._position
        goes_on = position == self._buffer_end
        self._buffer_start, self._buffer = self._buffer_end, b""  # free the bytes before others come
        while (block := self._ahead.next) is not None and block.end <= position:
            self._ahead.drop()  # passed over
            self._begin_more()
        is_under_way = block is not None and block.start <= position
        if not is_under_way and not (block is not None and self._is_announced):
            self._ahead.clear()
            self._to_begin = iter(())
            self._is_announced = False
            if goes_on and self._unannounced_bytes >= FIRST_BYTES:
                self._read_ahead([Range(position, self._size)])
        if (block := self._ahead.next) is not None and block.start <= position:
            self._unannounced_bytes = 0
            data = self._ahead.take()
            self._begin_more()
        else:
            block = Range(position, min(position + max(size, FIRST_BYTES), self._size))
            self._unannounced_bytes = self._unannounced_bytes + block.size if goes_on else block.size
            call = start_call(lambda: self._fetch(*block))
            data = take_result(call, describe_range(self._uri, block), self._patience_s)
        self._check(block.start, data)
        self._buffer_start, self._buffer = block.start, data

    def _check(self, start: int, data: bytes) -> None:
        """Sum the file up as far as it was read without a gap; raise `TemporaryError` at its end if it is another."""
        if start == 0:
            self._crc32c_so_far = self._summed_bytes = 0
        if start != self._summed_bytes:
            return
        self._crc32c_so_far = google_crc32c.extend(self._crc32c_so_far, data)
        self._summed_bytes += len(data)
        if self._summed_bytes == self._size and self._crc32c not in (None, self._crc32c_so_far):
            raise TemporaryError(
                "StorageFailed",
                f"{self._uri}: its {self._size} bytes came with CRC32C {self._crc32c_so_far:08x}, the store "
                f"says {self._crc32c:08x}: they were changed on the way",
                next_step="start the same command again; if it stays so, check the memory of this machine",
            )

    def _fetch(self, start: int, end: int) -> bytes:
        uri = self._uri
        bucket, name = split_gcs_uri(uri)
        with map_gcs_errors(READ_SOURCE, uri):
            blob = gcs_bucket(bucket).blob(name, generation=self._generation)
            try:
                data = download_range(blob, uri, start, end, self._retry, self._timeout_s)
            except exceptions.NotFound as error:
                raise ChangedError(
                    "SourceChanged",
                    f"{uri} was replaced or deleted while it was read: generation {self._generation} is gone",
                    next_step="put the planned file back, or start a new run on the new one",
                ) from error
        if len(data) != end - start:
            raise TemporaryError(
                "StorageFailed",
                f"{uri}: asked for bytes [{start}, {end}), got {len(data)} bytes",
                next_step="start the same command again",
            )
        return data
