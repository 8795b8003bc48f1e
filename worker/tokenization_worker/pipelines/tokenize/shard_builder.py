"""The build task: slices of segments become one shard, its documents sidecar and its receipt.

A shard is fed by runs of tokens, wherever they come from. Order of writing: sidecar, shard, receipt, so a
receipt says that both are there. Final names are create-only; only a later epoch than the first, or the
repair of a damaged shard, may replace what it finds. A voided epoch may not even create: its names may be
none of the dataset's. Nor may the repair of a complete dataset whose shard came out otherwise than its table says.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from tokenization_worker.engine.task import ProductLost, WorkerState
from tokenization_worker.engine.task_progress import Tell, untold
from tokenization_worker.errors import ChangedError
from tokenization_worker.formats import npy
from tokenization_worker.formats.segment import SegmentLost, SegmentReader, crc32c_of
from tokenization_worker.formats.sidecar import DocumentsBuilder, ShardDocuments
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import Disagreement, create_receipt, place
from tokenization_worker.output.ledger.epochs import require_current
from tokenization_worker.output.ledger.receipts import ShardReceipt
from tokenization_worker.output.object_metadata import digest_metadata
from tokenization_worker.output.scratch import discard_segments
from tokenization_worker.output.tables import ShardSums
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.shard_planner import ShardPlan
from tokenization_worker.storage.base import Entry, Store, Upload
from tokenization_worker.storage.open import open_store

_CHUNK_BYTES = 1 << 20
"""Checksums and the write see each chunk while it is in the processor's cache."""


@dataclass(frozen=True, slots=True)
class BuildTask:
    """Build one shard.

    `segment_digests` and `slice_files` have one entry per piece of the shard: the digest of the segment in
    its range's receipt, and the file of each of the range's slices. `repair`: the shard that is there is
    damaged and may be replaced. `expected`: what the shard must be, where a complete dataset says so. `releasable`: as
    for `TokenizeTask`.
    """

    context: RunContext
    shard: ShardPlan
    segment_digests: tuple[str, ...]
    slice_files: tuple[tuple[int, ...], ...]
    repair: bool = False
    releasable: tuple[int, ...] = ()
    expected: ShardSums | None = None

    @property
    def product(self) -> str:
        return f"shard {self.shard.name.index} of split {self.shard.name.split}"

    @property
    def output_uri(self) -> str:
        return self.context.data.output.uri

    def run(self, worker: WorkerState, tell: Tell = untold) -> ShardReceipt:
        store = open_store(self.output_uri)
        discard_segments(store, self.context.epoch, self.releasable)
        try:
            return _build_shard(self, store, worker.node)
        except SegmentLost as loss:
            raise ProductLost(loss.range_id, loss.detail, loss.version) from loss


def _build_shard(task: BuildTask, store: Store, node: str) -> ShardReceipt:
    """Write one shard; returns the receipt that counts. Raises `SegmentLost`."""
    started = time.monotonic()
    context, name = task.context, task.shard.name
    work = _ShardWork(task, store)
    entry = work.place()
    receipt = ShardReceipt(
        plan_id=context.plan_id,
        epoch=context.epoch,
        split=name.split,
        index=name.index,
        shard=name.shard,
        path=work.path,
        tokens=task.shard.tokens,
        documents=work.documents.documents,
        bytes=entry.size,
        crc32c=work.crc32c,
        sha256=work.sha256.hexdigest(),
        documents_sha256=sha256(work.documents.to_bytes()).hexdigest(),
        version=entry.version,
        pieces=task.shard.pieces,
        node=node,
        pid=os.getpid(),
        seconds=round(time.monotonic() - started, 3),
    )
    return create_receipt(store, layout.shard_receipt_path(context.epoch, name.split, name.index), receipt)


class _ShardWork:
    """Writes the shard's bytes and keeps the checksums of the last time it did."""

    documents: ShardDocuments

    def __init__(self, task: BuildTask, store: Store) -> None:
        self._task = task
        self._store = store
        self._epoch = task.context.epoch
        name, output = task.shard.name, task.context.data.output
        self._documents_path = layout.documents_path(name.split, name.index)
        self.path = layout.shard_path(output.path, npy.SUFFIX, split=name.split, index=name.index, shard=name.shard)

    def place(self) -> Entry:
        """The shard at its name, its sidecar before it."""
        return self._place(self.path, self._write, self._is_same)

    def _place(
        self,
        path: str,
        write: Callable[[Upload], None],
        is_same: Callable[[Entry], bool],
        metadata: Mapping[str, str] | None = None,
    ) -> Entry:
        """`create_only.place` by the rules of epochs.

        In a later epoch what is there may be a voided writer's, who is about to take it back: it is replaced even
        where it is the same.
        """
        return place(
            self._store,
            path,
            write,
            is_same=lambda found: self._epoch == 0 and is_same(found),
            allow_replace=self._allow_replace,
            require_current=self._require_current,
            metadata=metadata,
        )

    def _write(self, upload: Upload) -> None:
        self.crc32c = 0
        self.sha256 = sha256()
        builder = DocumentsBuilder()
        header = npy.header(self._task.shard.tokens, self._task.context.numpy_dtype)
        self._write_chunk(upload, np.frombuffer(header, np.uint8))
        for chunk in self._chunks(builder):
            self._write_chunk(upload, chunk)
        self.documents = builder.finish()
        sidecar = self.documents.to_bytes()
        self._require_expected(ShardSums(self.sha256.hexdigest(), sha256(sidecar).hexdigest()))
        self._place(
            self._documents_path,
            lambda upload: upload.write(sidecar),
            lambda found: found.size == len(sidecar) and self._store.read(found.path) == sidecar,
            digest_metadata(sidecar),
        )

    def _require_expected(self, found: ShardSums) -> None:
        """Raise `Disagreement` before anything has its name, if this is not the shard that the dataset has."""
        if self._task.expected not in (None, found):
            name = self._task.shard.name
            raise Disagreement(
                "NotDeterministic",
                f"{self._store.uri}: shard {name.index} of split {name.split} was written again and differs from "
                f"{layout.SHARDS_TABLE}; it did not get its name",
                next_step="start the same command again; if it stays so, please report it with the index",
            )

    def _write_chunk(self, upload: Upload, chunk: NDArray[np.generic]) -> None:
        self.crc32c = crc32c_of(chunk, start=self.crc32c)
        self.sha256.update(chunk.data)
        upload.write(chunk.data)

    def _chunks(self, builder: DocumentsBuilder) -> Iterator[NDArray[np.unsignedinteger]]:
        """The shard's tokens in order, little-endian; its documents go to `builder` on the way."""
        task, context = self._task, self._task.context
        for piece, digest, files in zip(task.shard.pieces, task.segment_digests, task.slice_files, strict=True):
            segment = SegmentReader(
                self._store,
                layout.segment_path(context.epoch, piece.range_id),
                range_id=piece.range_id,
                digest=digest,
                dtype=context.numpy_dtype,
            )
            file_of_slice = np.array(files, dtype=np.int64)
            for block in segment.blocks(piece.stream, piece.start, piece.end):
                builder.add(block, piece.start, piece.end, file_of_slice)
                first = max(0, piece.start - block.token_start)
                data = block.tokens[first : piece.end - block.token_start]
                step = _CHUNK_BYTES // data.itemsize
                for start in range(0, len(data), step):
                    yield data[start : start + step]

    def _is_same(self, found: Entry) -> bool:
        """Whether the shard that is there holds the bytes that were just written."""
        if found.crc32c is not None:
            return found.crc32c == self.crc32c
        digest = sha256()
        for start in range(0, found.size, _CHUNK_BYTES):
            digest.update(self._store.read_range(self.path, start, start + _CHUNK_BYTES))
        return digest.digest() == self.sha256.digest()

    def _require_current(self) -> None:
        require_current(self._store, self._epoch)

    def _allow_replace(self) -> None:
        """Return if this build may replace what it found at its shard's name."""
        self._require_current()
        if self._epoch == 0 and not self._task.repair:
            raise ChangedError(
                "OutputConflict",
                f"{self._store.uri}/{self.path} (or its documents sidecar) holds something else than this job's shard",
                next_step="move it away, or write to another output.uri",
            )
