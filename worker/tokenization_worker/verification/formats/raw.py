"""Raw tokens without a header: how many there are follows from the size of the file."""

from __future__ import annotations

from collections.abc import Iterator

from tokenization_worker.verification.formats.base import DType, Expected, Problem
from tokenization_worker.verification.formats.flat import FlatDecoder, FlatScan


class _NoHeader:
    size = 0

    def tokens(self, head: bytes, dtype: DType, row_length: int) -> int | None:
        """Nothing says so."""
        del head, dtype, row_length
        return None


class RawScan(FlatScan):
    """A pass over tokens without a header."""

    @property
    def tokens(self) -> int | None:
        return self.tokens_seen

    def problems(self, expected: Expected) -> Iterator[Problem]:
        """Nothing: a file of the right size is right beside its tokens."""
        del expected
        return iter(())


class RawDecoder(FlatDecoder):
    """Shards of one file without a header."""

    def scan(self, dtype: DType, row_length: int = 0) -> FlatScan:
        return RawScan(dtype, _NoHeader(), row_length)


RAW = RawDecoder(".bin", _NoHeader())
