"""A cluster that tokenizes nothing: it writes what real tasks write, and answers after as long as their calls take.

Runs beside the objects in a process of its own, `serve`, so that neither costs the head time or memory. What a task
leaves is made by the code of the product where the head reads it: receipts, their form, lists of unusable documents.
"""

from __future__ import annotations

import heapq
import pickle
import threading
import time
from base64 import b64encode
from collections import Counter
from hashlib import sha256
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, NamedTuple

import numpy as np
import orjson
from scale_objects import CONNECTIONS, Objects, ObjectStore

from tokenization_worker.output import layout
from tokenization_worker.output.create_only import create_receipt
from tokenization_worker.output.ledger.receipts import (
    RangeReceipt,
    ScatterReceipt,
    ShardReceipt,
    SliceResult,
    segment_digest,
)
from tokenization_worker.output.naming import name_files
from tokenization_worker.output.object_metadata import digest_metadata
from tokenization_worker.output.scratch import discard_scratch
from tokenization_worker.pipelines.tokenize.cell_feed import HELD_BYTES
from tokenization_worker.pipelines.tokenize.ranges.range_task import TokenizeTask
from tokenization_worker.pipelines.tokenize.scatter_task import ScatterTask
from tokenization_worker.pipelines.tokenize.shard_builder import BuildTask
from tokenization_worker.pipelines.tokenize.shuffle_planner import ShuffledShard
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.storage.base import PreconditionFailed

TOKEN_BYTES = 4

DOCUMENT_TOKENS = 1_000
TOKENS_PER_BYTE = 0.3
"""Of compressed text: 50 TB stored are 15 T tokens."""

TOKENIZE_CALLS = 5
"""A look for the receipt, source opened and read, segment, receipt."""
BUILD_CALLS = 8
"""Segment's end and blocks, sidecar, shard, two looks at the epoch, receipt."""

SCATTER_CALLS = 4
"""A look for the receipt, the scattered object, receipt; besides, `SPAN_CALLS` for each span."""
SPAN_CALLS = 2
"""A segment's end, and its blocks."""

SHUFFLED_TOKENS_PER_BYTE = 0.98
"""Of plain text, where the plan's estimate counts: it decides how many windows a shuffle has."""

LISTS_ONE_IN = 10
"""Ranges that have a list of unusable documents."""

NODE = "ray-worker-group-{:04d}/" + "0123456789abcdef" * 3 + "01234567"
NODES = 200


AnyTask = TokenizeTask | ScatterTask | BuildTask


class Requests(NamedTuple):
    """Of one task. `writes`: uploads and listings (class A of Cloud Storage); `reads`: the others (class B); `rounds`:
    one after the other, since up to `CONNECTIONS` reads of scattered objects are made at once."""

    writes: int
    reads: int
    rounds: int


def requests_of(task: AnyTask) -> Requests:
    """What the product asks of the store for such a task."""
    if isinstance(task, TokenizeTask):
        return Requests(2, 3, TOKENIZE_CALLS)
    if isinstance(task, ScatterTask):
        reads = SPAN_CALLS * len(task.window.spans)
        return Requests(2, 1 + reads, SCATTER_CALLS + reads)
    if isinstance(task.shard, ShuffledShard):
        cells = task.shard.end_cell - task.shard.first_cell
        held = task.shard.tokens * TOKEN_BYTES
        reads = len(task.scattered) * (1 + min(cells, -(-held // HELD_BYTES)))
        return Requests(3, 3 + reads, BUILD_CALLS + -(-reads // CONNECTIONS))
    return Requests(3, 5, BUILD_CALLS)


class Cluster:
    """Ends tasks one after the other when their time has come, and sends what they return. `requests`: of all tasks,
    by stage and class."""

    def __init__(
        self, answers: Connection, uri: str, objects: Objects, latency_s: float, requests: Counter[str]
    ) -> None:
        self._answers = answers
        self._store = ObjectStore(uri, objects, connections=1)
        self._latency_s = latency_s
        self._requests = requests
        self._due: list[tuple[float, int, AnyTask]] = []
        self._changed = threading.Condition()
        self._is_open = True
        self._worker = threading.Thread(target=self._work, daemon=True)
        self._worker.start()

    def submit(self, number: int, task: AnyTask) -> None:
        rounds = requests_of(task).rounds + bool(task.releasable)
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + rounds * self._latency_s, number, task))
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
            self._count(task)
            try:
                result: object = run_task(self._store, task)
            except Exception as error:  # noqa: BLE001  what a pool does: the error is the task's result
                result = error
            self._answers.send_bytes(pickle.dumps((number, result), pickle.HIGHEST_PROTOCOL))

    def _count(self, task: AnyTask) -> None:
        needed, stage = requests_of(task), _STAGES[type(task)]
        self._requests[f"{stage}, class A"] += needed.writes
        self._requests[f"{stage}, class B"] += needed.reads

    def _take(self) -> tuple[int, AnyTask] | None:
        """The next task whose time has come; None after `close`."""
        with self._changed:
            while self._is_open:
                left = self._due[0][0] - time.monotonic() if self._due else None
                if left is not None and left <= 0:
                    _, number, task = heapq.heappop(self._due)
                    return number, task
                self._changed.wait(left)
        return None


_STAGES: dict[type, str] = {TokenizeTask: "tokenize", ScatterTask: "scatter", BuildTask: "build"}


def run_task(store: ObjectStore, task: AnyTask) -> RangeReceipt | ScatterReceipt | ShardReceipt:
    discard_scratch(store, task.context.epoch, task.releasable)
    match task:
        case TokenizeTask():
            return tokenize_range(store, task)
        case ScatterTask():
            return scatter_window(store, task)
    return build_shard(store, task)


def tokenize_range(store: ObjectStore, task: TokenizeTask) -> RangeReceipt:
    """A segment of no bytes, and the receipt of a range whose documents all have `DOCUMENT_TOKENS` tokens."""
    context, range_id = task.context, task.range_id
    slices = []
    is_shuffled = context.data.output.shuffle is not None
    tokens_per_byte = SHUFFLED_TOKENS_PER_BYTE if is_shuffled else TOKENS_PER_BYTE
    for number, part in enumerate(task.slices):
        stored = (part.end if part.end >= 0 else part.size) - part.start
        docs = int(stored * tokens_per_byte) // DOCUMENT_TOKENS
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


def scatter_window(store: ObjectStore, task: ScatterTask) -> ScatterReceipt:
    """A scattered object of no bytes, whose documents are in all cells alike, and its receipt."""
    context, key = task.context, task.window.key
    units = sum(documents_in(span.start, span.end) for span in task.window.spans)
    cells = np.full(context.n_cells, units // context.n_cells, np.int64)
    cells[(np.arange(units % context.n_cells) + key.number * 7919) % context.n_cells] += 1
    tokens = units * DOCUMENT_TOKENS
    size = TOKEN_BYTES * tokens + 128 * units + 28 * context.n_cells
    put_sized(store, layout.scattered_path(context.epoch, key), size)
    receipt = ScatterReceipt(
        plan_id=context.plan_id,
        epoch=context.epoch,
        stream=key.stream,
        number=key.number,
        units=units,
        tokens=tokens,
        cell_tokens=b64encode((cells * DOCUMENT_TOKENS).astype("<u4").tobytes()).decode(),
        object_digest=sha256(f"{key.number}".encode()).hexdigest()[:32],
        size=size,
        node=NODE.format(key.number % NODES),
        pid=1000 + key.number % 7919,
        seconds=round(1 + key.number % 1000 / 1000, 3),
    )
    return create_receipt(store, layout.scatter_receipt_path(context.epoch, key), receipt)


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
        documents=_documents_of(task),
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


def _documents_of(task: BuildTask) -> int:
    """Documents that begin in a shard. Of a shuffled stream all shards before have the size that the job asks for."""
    if isinstance(task.shard, ShuffledShard):
        start = task.shard.name.index * task.context.data.output.shard_tokens
        return documents_in(start, start + task.shard.tokens)
    return sum(documents_in(span.start, span.end) for span in task.shard.spans)


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
    requests: Counter[str] = Counter()
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
        if kind == "requests":
            connection.send(dict(requests))
            continue
        answer = answer_calls if kind == "calls" else run_cluster
        arguments = (connection, uri, objects_of(uri), latency_s, requests)
        threading.Thread(target=answer, args=arguments, daemon=True).start()


def read_requests(address: str) -> dict[str, int]:
    """The requests of all tasks so far, by stage and class."""
    with Client(address) as connection:
        connection.send(("requests", ""))
        counts: dict[str, int] = connection.recv()
        return counts


def answer_calls(connection: Connection, uri: str, objects: Objects, latency_s: float, requests: Counter[str]) -> None:
    """One call after the other; the latency is the caller's business."""
    del uri, latency_s, requests
    while True:
        try:
            name, arguments = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        answer: Any = getattr(objects, name)(*arguments)
        connection.send(
            [(e.path, e.size, e.version, e.metadata, e.crc32c) for e in answer] if name == "page" else answer
        )


def run_cluster(connection: Connection, uri: str, objects: Objects, latency_s: float, requests: Counter[str]) -> None:
    """Take tasks until an empty message says that the rest are not wanted."""
    cluster = Cluster(connection, uri, objects, latency_s, requests)
    while message := connection.recv_bytes():
        cluster.submit(*pickle.loads(message))
    cluster.close()
    connection.close()
