"""Checks that all formats of a shard hold the same tokens.

Every format's tokens are summed in blocks while its files are read. Where sums differ, the block is read again.
"""

from __future__ import annotations

from collections.abc import Sequence

import google_crc32c
import numpy as np

from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.verification.claims import ClaimedFile
from tokenization_worker.verification.formats.base import DType, TokenArray
from tokenization_worker.verification.formats.registry import decoder_of
from tokenization_worker.verification.report import Fault, Finding

_BLOCK_TOKENS = 1 << 20


class TokenSums:
    """CRC32C of each block of tokens, in order."""

    def __init__(self) -> None:
        self.sums: list[int] = []
        self._room = 0  # tokens that the last block can still take

    def add(self, tokens: TokenArray) -> None:
        """Take the next tokens."""
        while len(tokens):
            if not self._room:
                self.sums.append(0)
                self._room = _BLOCK_TOKENS
            part, tokens = tokens[: self._room], tokens[self._room :]
            self.sums[-1] = google_crc32c.extend(self.sums[-1], np.ascontiguousarray(part).view(np.uint8))
            self._room -= len(part)


def find_difference(
    store: Store,
    dtype: DType,
    first: Sequence[ClaimedFile],
    other: Sequence[ClaimedFile],
    sums: tuple[TokenSums, TokenSums],
) -> Finding | None:
    """The first token that the files `other` have otherwise than the files `first`, of as many tokens."""
    block = next((number for number, (a, b) in enumerate(zip(sums[0].sums, sums[1].sums, strict=True)) if a != b), None)
    if block is None:
        return None
    start = block * _BLOCK_TOKENS
    expected, found = (_read(store, dtype, files, start) for files in (first, other))
    if len(expected) != len(found) or not (different := np.flatnonzero(expected != found)).size:
        return None  # one of them was replaced since it was summed: its checksum tells
    at = int(different[0])
    words = f"id {expected[at]:,}, as in {first[0].path}"
    return Finding(Fault.FORMATS_DIFFER, words, f"id {found[at]:,}", other[0].path, start + at)


def _read(store: Store, dtype: DType, files: Sequence[ClaimedFile], start: int) -> TokenArray:
    """The tokens of the block that begins at `start`; none where a file is missing."""

    def read_range(number: int, first: int, last: int) -> bytes:
        return store.read_range(files[number].path, first, last)

    try:
        return decoder_of(files[0].format).read(read_range, start, start + _BLOCK_TOKENS, dtype)
    except NotFound:
        return np.empty(0, dtype)
