"""The files of one shard while they are written: their names, their bytes in every format, and their checksums.

The tokens are read once. Each format turns them into its files, and each file is summed on its way to the store. Who
may replace what lies at a name is not decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import groupby

import google_crc32c
import numpy as np

from tokenization_worker.formats.base import ByteSink, LengthArray, ShardShape, ShardWriter, TokenArray
from tokenization_worker.formats.registry import kind_of
from tokenization_worker.output.ledger.receipts import WrittenFile
from tokenization_worker.output.naming import FileName
from tokenization_worker.sequences.parts import PartArray
from tokenization_worker.storage.base import Entry, Store

_CHUNK_BYTES = 1 << 20


class ShardFiles:
    """Writes all files of a shard, as often as that is asked for; keeps the checksums of the last time."""

    def __init__(self, names: Sequence[FileName], shape: ShardShape) -> None:
        self.paths = [name.path for name in names]
        self._names = names
        self._shape = shape
        self._files: list[_SummedFile] = []
        self._writers: list[ShardWriter] = []

    def begin(self, sinks: Sequence[ByteSink]) -> None:
        """Write from the first byte on, into sinks in the order of `paths`."""
        self._files = [_SummedFile(sink) for sink in sinks]
        named = zip(self._names, self._files, strict=True)
        self._writers = [
            kind_of(name).begin(self._shape, [file for _, file in files])
            for name, files in groupby(named, key=lambda pair: pair[0].format)
        ]

    def write(self, tokens: TokenArray, parts: PartArray) -> None:
        for writer in self._writers:
            writer.write(tokens, parts)

    def finish(self, entries: LengthArray) -> None:
        for writer in self._writers:
            writer.finish(entries)

    @property
    def sha256(self) -> tuple[str, ...]:
        """Of each file, as it was written last."""
        return tuple(file.sha256.hexdigest() for file in self._files)

    def is_same(self, store: Store, number: int, found: Entry) -> bool:
        """Whether what lies at the name of file `number` has the bytes that were just written."""
        written = self._files[number]
        if found.size != written.size:
            return False
        if found.crc32c is not None:
            return bool(found.crc32c == written.crc32c)
        digest = sha256()
        for start in range(0, found.size, _CHUNK_BYTES):
            digest.update(store.read_range(found.path, start, start + _CHUNK_BYTES))
        return digest.digest() == written.sha256.digest()

    def describe(self, entries: Sequence[Entry]) -> tuple[WrittenFile, ...]:
        """The files for their receipt. `entries`: what lies at their names now."""
        return tuple(
            WrittenFile(name.format, name.path, entry.size, file.crc32c, file.sha256.hexdigest(), entry.version)
            for name, entry, file in zip(self._names, entries, self._files, strict=True)
        )


class _SummedFile:
    """Passes bytes on, and sums them while they are in the processor's cache."""

    def __init__(self, sink: ByteSink) -> None:
        self._sink = sink
        self.size = 0
        self.crc32c = 0
        self.sha256 = sha256()

    def write(self, data: bytes | memoryview, /) -> None:
        view = memoryview(data)
        self.crc32c = google_crc32c.extend(self.crc32c, np.frombuffer(view, np.uint8))
        self.sha256.update(view)
        self.size += view.nbytes
        self._sink.write(view)
