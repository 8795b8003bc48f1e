"""The documents that are held out: chosen by a hash of their text, and those with the lowest hashes kept.

What is kept depends on the documents alone, not on how they were cut into ranges: a range keeps whatever the whole
source would keep of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from operator import itemgetter
from typing import NamedTuple

import orjson

from tokenization_worker.readers.decompress import zstd

KEPT_BYTES = 64 << 20
"""Of text is enough: the document that reaches it is the last one."""

_PERSON = b"tokjob/holdout/1"


class HeldOut(NamedTuple):
    """A document, by its hash; `group`: of its file, "" where there are none."""

    hash: int
    text: str
    group: str


def hash_of(text: bytes) -> int:
    """The 64-bit number that decides whether a document of UTF-8 `text` is held out."""
    return int.from_bytes(blake2b(text, digest_size=8, person=_PERSON).digest(), "big")


class Holdout:
    """Keeps the documents with the lowest hashes while documents come. `documents`: all that came."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self.documents = 0
        self._kept: list[HeldOut] = []
        self._bytes = 0
        self._room = kept_bytes

    def add(self, documents: Iterable[HeldOut]) -> None:
        """Take documents; those with higher hashes go where there is no room for all."""
        for document in documents:
            self.documents += 1
            self._kept.append(document)
            self._bytes += len(document.text.encode())
            if self._bytes > 2 * self._room:
                self._shrink()

    def _shrink(self) -> None:
        self._kept = list(self.kept())
        self._bytes = sum(len(document.text.encode()) for document in self._kept)

    def kept(self) -> Iterator[HeldOut]:
        """Those that are kept, by hash: each before which there is not yet enough text."""
        size = 0
        for document in sorted(self._kept, key=itemgetter(0, 1, 2)):
            if size >= self._room:
                return
            size += len(document.text.encode())
            yield document

    def lines(self) -> bytes:
        """`kept` as JSON lines under zstd."""
        rows = b"".join(
            orjson.dumps(
                {"text": document.text, **({"group": document.group} if document.group else {})},
                option=orjson.OPT_APPEND_NEWLINE,
            )
            for document in self.kept()
        )
        packed: bytes = zstd.compress(rows, options={zstd.CompressionParameter.checksum_flag: 1})
        return packed


def read_held_out(data: bytes) -> Iterator[HeldOut]:
    """The documents of `Holdout.lines`; raises `ValueError` where the bytes are not as it made them."""
    try:
        rows = zstd.decompress(data)
    except zstd.ZstdError as error:
        raise ValueError(str(error)) from error
    for line in rows.splitlines():
        row = orjson.loads(line)
        yield HeldOut(hash_of(row["text"].encode()), row["text"], row.get("group", ""))
