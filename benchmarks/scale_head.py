"""What the head process of a scale run sees: objects a call away, a source of very many files, a cluster."""

from __future__ import annotations

import io
import os
import pickle
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Client, Connection
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import orjson
from scale_objects import CONNECTIONS, PAGE_OBJECTS

from tokenization_worker.engine.executor import UnderWay
from tokenization_worker.engine.task import Done, Task, Worker
from tokenization_worker.storage.base import ByteReader, Entry, NotFound
from tokenization_worker.storage.patterns import Pattern
from tokenization_worker.storage.source_file import SourceFile

READ_BYTES = 8 << 20
_LINE = orjson.dumps({"id": 1, "text": "the quick brown fox jumps over the lazy dog " * 20}) + b"\n"


class RemoteObjects:
    """The calls of `scale_objects.Calls`, each as slow as the network: one connection a thread."""

    def __init__(self, address: str, uri: str, latency_s: float) -> None:
        self._address = address
        self._uri = uri
        self._latency_s = latency_s
        self._local = threading.local()

    def _call(self, name: str, *arguments: object) -> Any:
        started = time.monotonic()
        if getattr(self._local, "connection", None) is None:
            self._local.connection = Client(self._address)
            self._local.connection.send(("calls", self._uri))
        connection: Connection = self._local.connection
        connection.send((name, arguments))
        answer = connection.recv()
        time.sleep(max(0.0, self._latency_s - (time.monotonic() - started)))
        return answer

    def page(self, prefix: str, after: str) -> list[Entry]:
        return [Entry(*values) for values in self._call("page", prefix, after)]

    def stat(self, path: str) -> Entry | None:
        entry: Entry | None = self._call("stat", path)
        return entry

    def get(self, path: str, start: int, end: int | None) -> bytes | None:
        data: bytes | None = self._call("get", path, start, end)
        return data

    def put(self, path: str, data: bytes, size: int, metadata: dict[str, str], expect: str) -> Entry | None:
        entry: Entry | None = self._call("put", path, data, size, metadata, expect)
        return entry

    def remove(self, path: str, version: str | None) -> None:
        self._call("remove", path, version)


class Corpus(NamedTuple):
    """Files of plain JSON lines, the same text over and over: `sizes` in turn."""

    files: int
    sizes: tuple[int, ...]

    def file(self, number: int) -> SourceFile:
        uri = f"gs://corpus/part-{number:08d}.jsonl"
        return SourceFile(uri, self.sizes[number % len(self.sizes)], f"crc32c:{number:06d}==")


class SyntheticSource:
    """A `Source` whose files are computed."""

    connections = CONNECTIONS

    def __init__(self, corpus: Corpus, latency_s: float) -> None:
        self._corpus = corpus
        self._latency_s = latency_s

    def list(self, pattern: Pattern) -> Iterator[SourceFile]:
        for number in range(self._corpus.files):
            if number % PAGE_OBJECTS == 0:
                time.sleep(self._latency_s)
            yield self._corpus.file(number)

    def stat(self, uri: str) -> SourceFile | None:
        time.sleep(self._latency_s)
        number = uri.removeprefix("gs://corpus/part-").removesuffix(".jsonl")
        return self._corpus.file(int(number)) if number.isdigit() else None

    def is_folder(self, uri: str) -> bool:
        time.sleep(self._latency_s)
        return uri.rstrip("/") == "gs://corpus"

    def open(self, uri: str) -> tuple[SourceFile, ByteReader]:
        file = self.stat(uri)
        if file is None:
            raise NotFound(uri)
        return file, _Reader(file.size, self._latency_s)


class _Reader(io.RawIOBase):
    """The bytes of a file, `READ_BYTES` a call."""

    def __init__(self, size: int, latency_s: float) -> None:
        self._size = size
        self._latency_s = latency_s
        self._position = 0
        self._fetched = 0

    def read(self, size: int = -1, /) -> bytes:
        end = min(self._size, self._size if size < 0 else self._position + size)
        if end > self._fetched:
            time.sleep(self._latency_s)
            self._fetched = max(end, min(self._size, self._position + READ_BYTES))
        start, self._position = self._position, max(end, self._position)
        skip = start % len(_LINE)
        lines = -(-(skip + end - start) // len(_LINE))
        return (_LINE * lines)[skip : skip + max(0, end - start)]

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position


class SimulatedExecutor:
    """Sends tasks to the cluster of `scale_cluster`, and takes what they return, both pickled as in a real cluster."""

    def __init__(self, address: str, uri: str, slots: int) -> None:
        self.slots = slots
        self._cluster = Client(address)
        self._cluster.send(("cluster", uri))
        self._running: dict[int, Task] = {}
        self._submitted = 0
        self._ended: SimpleQueue[bytes] = SimpleQueue()
        self._receiver = threading.Thread(target=self._receive, daemon=True)
        self._receiver.start()

    def blocked_reason(self) -> str:
        return ""

    def under_way(self) -> UnderWay:
        return UnderWay(self.slots, self.slots)

    def submit(self, task: Task, worker: Worker | None = None) -> None:
        del worker
        self._submitted += 1
        self._running[self._submitted] = task
        self._cluster.send_bytes(pickle.dumps((self._submitted, task), pickle.HIGHEST_PROTOCOL))

    def _receive(self) -> None:
        while True:
            try:
                self._ended.put(self._cluster.recv_bytes())
            except (EOFError, ConnectionResetError):
                return

    def wait(self, timeout_s: float) -> list[Done]:
        done: list[Done] = []
        try:
            done.append(self._take(self._ended.get(timeout=timeout_s)))
            while True:
                done.append(self._take(self._ended.get_nowait()))
        except Empty:
            return done

    def _take(self, answer: bytes) -> Done:
        number, result = pickle.loads(answer)
        return Done(self._running.pop(number), result)

    def close(self, *, grace_s: float = 0.0) -> list[Done]:
        del grace_s
        self._running.clear()
        if not self._cluster.closed:
            self._cluster.send_bytes(b"")
            self._receiver.join()
            self._cluster.close()
        return []
