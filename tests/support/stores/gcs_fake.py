"""A small Google Cloud Storage of our own, for what the emulator gets wrong and for faults.

Every write and delete honours `ifGenerationMatch`, a resumable one when it ends; `generation` pins a read; a
finished session answers a repeated request as it did before. Faults are planted for one request at a time.
"""

from __future__ import annotations

import base64
import gc
import json
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import google_crc32c

from support.local_servers import Handler, serve


@dataclass(frozen=True)
class Fault:
    """What the next matching request gets. `done`: the work is done all the same, only its answer is lost.

    `status` 0 breaks the connection; `keep` makes the service keep only so many bytes of a chunk; `meanwhile` is
    what somebody else does just before the request, which is then served as usual.
    """

    method: str
    path: str
    status: int = 0
    text: str = ""
    done: bool = False
    keep: int | None = None
    meanwhile: Callable[[], object] | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Stored:
    data: bytes
    generation: int
    metadata: dict[str, str]
    crc32c: int
    updated: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass
class Session:
    name: str
    expect: int | None
    metadata: dict[str, str]
    data: bytes = b""
    answer: tuple[int, dict[str, Any]] | None = None


@dataclass
class FakeGcs:
    """One bucket, called `bucket`.

    `connections`: where those that brought requests came from. `hold` is called with every request before it is served,
    and may take its time; `ahead_s`: by so much its clock is ahead of this machine's;
    `send` may cut an answer's body into parts, change it, or wait in between.
    """

    objects: dict[str, Stored] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    connections: set[tuple[str, int]] = field(default_factory=set)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    damage: Callable[[bytes], bytes] = field(default=lambda data: data)
    hold: Callable[[str], object] = field(default=lambda request: None)
    send: Callable[[str, bytes], Iterable[bytes]] = field(default=lambda request, body: (body,))
    generation: int = 1000
    has_failed: bool = False
    gives_checksums: bool = True
    ahead_s: float = 0.0
    url: str = ""

    def put(self, name: str, data: bytes, expect: int | None = None, metadata: dict[str, str] | None = None) -> bool:
        """Store an object if `expect` is what is there; `damage` is done to the bytes on the way."""
        found = self.objects.get(name)
        if expect is not None and expect != (found.generation if found else 0):
            return False
        self.generation += 1
        data = self.damage(data)
        self.objects[name] = Stored(data, self.generation, metadata or {}, google_crc32c.value(data), self.now())
        return True

    def properties(self, name: str) -> dict[str, Any]:
        found = self.objects[name]
        return {
            "name": name,
            "bucket": "bucket",
            "size": str(len(found.data)),
            "generation": str(found.generation),
            "crc32c": base64.b64encode(found.crc32c.to_bytes(4, "big")).decode(),
            "metadata": found.metadata,
            "updated": f"{found.updated:%Y-%m-%dT%H:%M:%S.%fZ}",
        }

    def now(self) -> datetime:
        """By the service's clock."""
        return datetime.now(UTC) + timedelta(seconds=self.ahead_s)


class _Handler(Handler):
    fake: FakeGcs

    def date_time_string(self, timestamp: float | None = None) -> str:
        return (
            format_datetime(self.fake.now(), usegmt=True) if timestamp is None else super().date_time_string(timestamp)
        )

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        fake = self.fake
        request = f"{self.command} {self.path}"
        fake.hold(request)
        with fake.lock:
            fake.requests.append(request)
            fake.connections.add(self.client_address)
            matches = [f for f in fake.faults if f.method == self.command and f.path in self.path]
            fault = matches[0] if matches else None
            if fault is not None:
                fake.has_failed |= self.command == "GET"
                fake.faults.remove(fault)
                if fault.keep is not None:
                    body = body[: fault.keep]
                if fault.meanwhile is not None:
                    fault.meanwhile()
            is_answered = fault is None or fault.keep is not None or fault.meanwhile is not None
            if is_answered or (fault is not None and fault.done):
                status, headers, answer = self._do(unquote(parts.path), query, body)
            if fault is not None and not is_answered:
                if fault.status == 0:
                    self.close_connection = True
                    self.connection.close()
                    return
                status, headers = fault.status, fault.headers
                answer = json.dumps({"error": {"code": status, "message": fault.text}}).encode()
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        for part in fake.send(request, answer):
            self.wfile.write(part)

    do_GET = do_POST = do_PUT = do_DELETE = _handle

    def _do(self, path: str, query: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        expect = int(query["ifGenerationMatch"]) if "ifGenerationMatch" in query else None
        if "/b/bucket/" not in path:
            return _json(404, {"error": {"code": 404, "message": "The specified bucket does not exist."}})
        if path.startswith("/upload/"):
            if "upload_id" in query:
                return self._session(query["upload_id"], body)
            if query["uploadType"] == "resumable":
                return self._begin(json.loads(body), expect)
            described, content = _split_multipart(self.headers["content-type"], body)
            if not self.fake.put(described["name"], content, expect, described.get("metadata")):
                return _json(412, {"error": {"code": 412, "message": "conditionNotMet"}})
            return _json(200, self.fake.properties(described["name"]))
        name = path.partition("/o/")[2]
        if not name:
            names = sorted(n for n in self.fake.objects if n.startswith(query.get("prefix", "")))
            return _json(200, {"items": [self.fake.properties(n) for n in names]})
        found = self.fake.objects.get(name)
        if found is None or ("generation" in query and int(query["generation"]) != found.generation):
            return _json(404, {"error": {"code": 404, "message": f"No such object: bucket/{name}"}})
        if self.command == "DELETE":
            if expect is not None and expect != found.generation:
                return _json(412, {"error": {"code": 412, "message": "conditionNotMet"}})
            del self.fake.objects[name]
            return 204, {}, b""
        if query.get("alt") != "media":
            return _json(200, self.fake.properties(name))
        headers = {"x-goog-generation": str(found.generation)}
        if self.fake.gives_checksums:
            headers["x-goog-hash"] = f"crc32c={self.fake.properties(name)['crc32c']}"
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        if wanted is None:
            return 200, headers, self.fake.damage(found.data)
        start, end = int(wanted[1]), int(wanted[2]) + 1
        self.fake.ranges.append((start, end))
        return (206 if start < len(found.data) else 416), headers, found.data[start:end]

    def _begin(self, described: dict[str, Any], expect: int | None) -> tuple[int, dict[str, str], bytes]:
        key = f"secret-{len(self.fake.requests)}"
        self.fake.sessions[key] = Session(described["name"], expect, described.get("metadata", {}))
        return 200, {"location": f"{self.fake.url}/upload/storage/v1/b/bucket/o?upload_id={key}"}, b""

    def _session(self, key: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        session = self.fake.sessions.get(key)
        if session is None:
            return _json(404, {"error": {"code": 404, "message": "no such upload"}})
        if self.command == "DELETE":
            del self.fake.sessions[key]
            return 499, {}, b""
        if session.answer is None:
            span, _, total = self.headers["content-range"].removeprefix("bytes ").partition("/")
            start = int(span.partition("-")[0]) if span != "*" else len(session.data)
            session.data += body[max(0, len(session.data) - start) :]
            if total == "*" or len(session.data) < int(total):
                kept = {"range": f"bytes=0-{len(session.data) - 1}"} if session.data else {}
                return 308, kept, b""
            prefix = "x-goog-meta-"
            late = {k.lower()[len(prefix) :]: v for k, v in self.headers.items() if k.lower().startswith(prefix)}
            if self.fake.put(session.name, session.data, session.expect, session.metadata | late):
                session.answer = 200, self.fake.properties(session.name)
            else:
                session.answer = 412, {"error": {"code": 412, "message": "conditionNotMet"}}
        return _json(*session.answer)


def _json(status: int, value: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
    return status, {"content-type": "application/json"}, json.dumps(value).encode()


def _split_multipart(content_type: str, body: bytes) -> tuple[dict[str, Any], bytes]:
    boundary = content_type.partition("boundary=")[2].strip("'\"").encode()
    first, second = body.split(b"--" + boundary)[1:3]
    described = json.loads(message_from_bytes(first.lstrip(b"\r\n")).get_payload())
    return described, second.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")


@contextmanager
def serve_fake_gcs() -> Iterator[FakeGcs]:
    """A running service on a free port, until the end of the block."""
    fake = FakeGcs()
    try:
        with serve(type("_GcsHandler", (_Handler,), {"fake": fake})) as port:
            fake.url = f"http://127.0.0.1:{port}"
            yield fake
    finally:
        fake.objects.clear()  # threads of connections that clients keep have it as long as the process lives
        fake.sessions.clear()
        if fake.has_failed:  # here, and not in whatever test comes next (see the users' `pytestmark`)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()
