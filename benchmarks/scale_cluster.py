"""A cluster that tokenizes nothing: it writes what real tasks write, and answers after as long as their calls take.

Runs beside the objects in a process of its own, `serve`, so that neither costs the head time or memory. What a task
leaves is made by the code of the product where the head reads it: receipts, their form, lists of unusable documents.
"""

from __future__ import annotations

import heapq
import pickle
import threading
import time
from hashlib import sha256
from multiprocessing.connection import Connection, Listener
from typing import Any

import orjson
from scale_objects import Objects, ObjectStore

from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_receipt
from tokenization_worker.output.ledger.receipts import RangeReceipt, ShardReceipt, SliceResult, segment_digest
from tokenization_worker.output.naming import name_files
from tokenization_worker.output.object_metadata import digest_metadata
from tokenization_worker.output.scratch import discard_scratch
from tokenization_worker.pipelines.tokenize.ranges.range_task import TokenizeTask
from tokenization_worker.pipelines.tokenize.shard_builder import BuildTask
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.storage.base import PreconditionFailed

DOCUMENT_TOKENS = 1_000
TOKENS_PER_BYTE = 0.3
"""Of compressed text: 50 TB stored are 15 T tokens."""

TOKENIZE_CALLS = 5
"""A look for the receipt, source opened and read, segment, receipt."""
BUILD_CALLS = 8
"""Segment's end and blocks, sidecar, shard, two looks at the epoch, receipt."""

LISTS_ONE_IN = 10
"""Ranges that have a list of unusable documents."""

NODE = "ray-worker-group-{:04d}/" + "0123456789abcdef" * 3 + "01234567"
NODES = 200


class Cluster:
    """Ends tasks one after the other when their time has come, and sends what they return."""

    def __init__(self, answers: Connection, uri: str, objects: Objects, latency_s: float) -> None:
        self._answers = answers
        self._store = ObjectStore(uri, objects, connections=1)
        self._latency_s = latency_s
        self._due: list[tuple[float, int, TokenizeTask | BuildTask]] = []
        self._changed = threading.Condition()
        self._is_open = True
        self._worker = threading.Thread(target=self._work, daemon=True)
        self._worker.start()

    def submit(self, number: int, task: TokenizeTask | BuildTask) -> None:
        calls = (TOKENIZE_CALLS if isinstance(task, TokenizeTask) else BUILD_CALLS) + bool(task.releasable)
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + calls * self._latency_s, number, task))
            self._changed.notify()

    def close(self) -> None:
        """Forget what has not ended: its workers were killed."""
        with self._changed:
            self._is_open = False
            self._changed.notify()
        self._worker.join()

    def _work(self) -> None:
        while (ended := self._take()) is not None:
            number, task = ended
            try:
                result: object = run_task(self._store, task)
            except Exception as error:  # noqa: BLE001  what a pool does: the error is the task's result
                result = error
            self._answers.send_bytes(pickle.dumps((number, result), pickle.HIGHEST_PROTOCOL))

    def _take(self) -> tuple[int, TokenizeTask | BuildTask] | None:
        """The next task whose time has come; None after `close`."""
        with self._changed:
            while self._is_open:
                left = self._due[0][0] - time.monotonic() if self._due else None
                if left is not None and left <= 0:
                    _, number, task = heapq.heappop(self._due)
                    return number, task
                self._changed.wait(left)
        return None


def run_task(store: ObjectStore, task: TokenizeTask | BuildTask) -> RangeReceipt | ShardReceipt:
    discard_scratch(store, task.context.epoch, task.releasable)
    return tokenize_range(store, task) if isinstance(task, TokenizeTask) else build_shard(store, task)


def tokenize_range(store: ObjectStore, task: TokenizeTask) -> RangeReceipt:
    """A segment of no bytes, and the receipt of a range whose documents all have `DOCUMENT_TOKENS` tokens."""
    context, range_id = task.context, task.range_id
    slices = []
    for number, part in enumerate(task.slices):
        stored = (part.end if part.end >= 0 else part.size) - part.start
        docs = int(stored * TOKENS_PER_BYTE) // DOCUMENT_TOKENS
        digest = sha256(f"{range_id}-{number}".encode()).hexdigest()[:32]
        slices.append(SliceResult(part.file, "Read", "", (docs * DOCUMENT_TOKENS,), (docs,), docs, {}, digest))
    list_digest = ""
    if range_id % LISTS_ONE_IN == 0:
        list_digest = put_list(store, task)
        slices[0] = _with_unusable(slices[0])
    tokens = sum(sum(part.tokens) for part in slices)
    put_sized(store, layout.segment_path(context.epoch, range_id), 4 * tokens)
    receipt = RangeReceipt(
        plan_id=context.plan_id,
        epoch=context.epoch,
        range_id=range_id,
        slices=tuple(slices),
        segment_digest=segment_digest(slices),
        segment_bytes=4 * tokens,
        quarantine_digest=list_digest,
        text_bytes=4 * tokens,
        source_bytes=5 * tokens,
        stored_bytes=task.stored_bytes,
        samples=tokens // DOCUMENT_TOKENS // 1024,
        engine=context.engine,
        node=NODE.format(range_id % NODES),
        pid=1000 + range_id % 7919,
        seconds=round(1 + range_id % 1000 / 1000, 3),
    )
    return create_receipt(store, layout.range_receipt_path(context.epoch, range_id), receipt)


def _with_unusable(part: SliceResult) -> SliceResult:
    return SliceResult(
        part.file, part.outcome, "", part.tokens, part.docs, part.records + 1, {"InvalidJson": 1}, part.digest
    )


def put_list(store: ObjectStore, task: TokenizeTask) -> str:
    """A list of one unusable document; returns its digest."""
    part = task.slices[0]
    row = {"slice": 0, "file": part.file, "uri": part.uri, "position": part.start, "record": 0}
    line = orjson.dumps(row | {"reason": "InvalidJson", "detail": "unexpected end", "excerpt": "{" * 200}) + b"\n"
    digest = sha256(line).hexdigest()[:32]
    put(store, layout.quarantine_path(task.context.epoch, task.range_id, digest), zstd.compress(line))
    return digest


def build_shard(store: ObjectStore, task: BuildTask) -> ShardReceipt:
    """A shard and a sidecar of a few bytes, and their receipt."""
    context, name = task.context, task.shard.name
    output = context.data.output
    path = name_files(output.path, output.formats, split=name.split, index=name.index, shard=name.shard)[0].path
    sidecar = f"sidecar of {path}".encode()
    put(store, layout.documents_path(name.split, name.index), sidecar, metadata=digest_metadata(sidecar))
    put_sized(store, path, 4 * task.shard.tokens + 128)
    entry = store.stat(path)
    assert entry is not None
    receipt = ShardReceipt(
        plan_id=context.plan_id,
        epoch=context.epoch,
        split=name.split,
        index=name.index,
        shard=name.shard,
        path=path,
        tokens=task.shard.tokens,
        documents=sum(documents_in(span.start, span.end) for span in task.shard.spans),
        bytes=entry.size,
        crc32c=entry.crc32c or 0,
        sha256=sha256(path.encode()).hexdigest(),
        documents_sha256=sha256(sidecar).hexdigest(),
        version=entry.version,
        spans=task.shard.spans,
        node=NODE.format(name.index % NODES),
        pid=1000 + name.index % 7919,
        seconds=round(1 + name.index % 1000 / 1000, 3),
    )
    return create_receipt(store, layout.shard_receipt_path(context.epoch, name.split, name.index), receipt)


def documents_in(start: int, end: int) -> int:
    """Documents that begin in tokens [start, end) of a range."""
    return -(-end // DOCUMENT_TOKENS) - -(-start // DOCUMENT_TOKENS)


def put(store: ObjectStore, path: str, data: bytes, padding: int = 0, metadata: dict[str, str] | None = None) -> None:
    """Create an object; one that is there stays."""
    with store.upload(path) as upload:
        upload.write(data)
        upload.pad(padding)
        try:
            upload.commit(metadata)
        except PreconditionFailed:
            return


def put_sized(store: ObjectStore, path: str, size: int) -> None:
    put(store, path, b"", size)


def serve(listener: Listener, latency_s: float) -> None:
    """Answer connections until one asks for the end. The first message of each says what it is for."""
    outputs: dict[str, Objects] = {}
    lock = threading.Lock()

    def objects_of(uri: str) -> Objects:
        with lock:
            return outputs.setdefault(uri, Objects())

    while True:
        connection = listener.accept()
        wanted: tuple[str, str] = connection.recv()
        kind, uri = wanted
        if kind == "end":
            return
        answer = answer_calls if kind == "calls" else run_cluster
        threading.Thread(target=answer, args=(connection, uri, objects_of(uri), latency_s), daemon=True).start()


def answer_calls(connection: Connection, uri: str, objects: Objects, latency_s: float) -> None:
    """One call after the other; the latency is the caller's business."""
    del uri, latency_s
    while True:
        try:
            name, arguments = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        answer: Any = getattr(objects, name)(*arguments)
        connection.send(
            [(e.path, e.size, e.version, e.metadata, e.crc32c) for e in answer] if name == "page" else answer
        )


def run_cluster(connection: Connection, uri: str, objects: Objects, latency_s: float) -> None:
    """Take tasks until an empty message says that the rest are not wanted."""
    cluster = Cluster(connection, uri, objects, latency_s)
    while message := connection.recv_bytes():
        cluster.submit(*pickle.loads(message))
    cluster.close()
    connection.close()
