"""The storage service as the fault proxy offers it: the emulator's objects, by the rules that the emulator lacks.

The emulator keeps the objects, and decides who creates and replaces them: every write reaches it in one request with
`ifGenerationMatch`, which it honours. Decided here, because it would ignore them, or fail:

- the precondition of a delete, and of a resumable session when it begins;
- the `generation` that a read or a look names;
- the checksum that comes with an upload (`crc32c`, `md5Hash`, `x-goog-hash`): 400 where the bytes have another;
- resumable sessions: nothing is visible before the last byte, a chunk that is not the last is a multiple of 256 KiB, a
  finished session answers a repeated request as it did before, and a question for its state finishes nothing.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from email import message_from_bytes
from enum import StrEnum
from hashlib import md5
from http.client import HTTPConnection
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import google_crc32c

_CHUNK_UNIT = 256 << 10
_BUCKET = re.compile(r"(?:/upload|/download)?/storage/v1/b/([^/]+)(?:/o(?:/(.+))?)?")
_PASSED_ON = {
    "content-type",
    "content-range",
    "range",
    "x-goog-generation",
    "x-goog-hash",
    "x-goog-stored-content-length",
}


class Call(StrEnum):
    """What a client asks of the service."""

    BUCKET = "bucket"
    LIST = "list"
    STAT = "stat"
    READ = "read"
    RANGE = "range"
    UPLOAD = "upload"
    START = "start"
    CHUNK = "chunk"
    LAST = "last"
    CANCEL = "cancel"
    DELETE = "delete"


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def is_success(self) -> bool:
        return self.status < 300


@dataclass
class Session:
    """A resumable upload: what was said when it began, the bytes so far, and the answer once it has ended."""

    bucket: str
    described: dict[str, Any]
    expect: int | None
    data: bytearray = field(default_factory=bytearray)
    answer: Answer | None = None


class Service:
    """Serves requests, one at a time, from the emulator at `host`. `url` is what clients know it by."""

    def __init__(self, host: str, url: str) -> None:
        self._address = urlsplit(host).netloc
        self._host = host
        self._url = url
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()
        self._connections = threading.local()
        self._n_sessions = 0
        self.deleted: dict[tuple[str, str], dict[str, Any]] = {}
        """The last properties of objects that are gone."""

    def name_call(self, request: Request) -> tuple[Call, str, str]:
        """What the request is, the bucket, and the object (or prefix) that it is about."""
        parts, query = urlsplit(request.target), request.query
        found = _BUCKET.fullmatch(parts.path)
        if found is None:
            raise ValueError(f"not a request that this service knows: {request.method} {parts.path}")
        bucket, name = found[1], unquote(found[2] or "")
        if parts.path.startswith("/upload/"):
            if "upload_id" in query:
                return self._name_session_call(request, bucket)
            if query["uploadType"] == "resumable":
                return Call.START, bucket, json.loads(request.body)["name"]
            return Call.UPLOAD, bucket, _split_multipart(request)[0]["name"]
        if not name:
            return (
                (Call.LIST, bucket, query.get("prefix", "")) if parts.path.endswith("/o") else (Call.BUCKET, bucket, "")
            )
        if request.method == "DELETE":
            return Call.DELETE, bucket, name
        if query.get("alt") == "media":
            return (Call.RANGE if "range" in request.headers else Call.READ), bucket, name
        return Call.STAT, bucket, name

    def _name_session_call(self, request: Request, bucket: str) -> tuple[Call, str, str]:
        session = self._sessions.get(request.query["upload_id"])
        name = session.described["name"] if session else ""
        if request.method == "DELETE":
            return Call.CANCEL, bucket, name
        is_last = not request.headers.get("content-range", "").endswith("/*")
        return (Call.LAST if is_last else Call.CHUNK), bucket, name

    def serve(self, request: Request) -> Answer:
        """Do what is asked, and answer as the real service would."""
        call, bucket, name = self.name_call(request)
        with self._lock:
            match call:
                case Call.UPLOAD:
                    described, content = _split_multipart(request)
                    return self._write(bucket, described, content, _generation(request, "ifGenerationMatch"))
                case Call.START:
                    return self._start(request, bucket, name)
                case Call.CHUNK | Call.LAST | Call.CANCEL:
                    return self._continue(request, call)
                case Call.DELETE:
                    return self._delete(_generation(request, "ifGenerationMatch"), bucket, name)
                case Call.STAT | Call.READ | Call.RANGE:
                    return self._read(request, call, bucket, name)
        return self._forward(request)

    def put(self, bucket: str, name: str, data: bytes) -> str:
        """Write an object whatever is there, as somebody else; its generation."""
        with self._lock:
            answer = self._write(bucket, {"name": name}, data, None)
            assert answer.is_success, answer
            return str(json.loads(answer.body)["generation"])

    def remove(self, bucket: str, name: str) -> None:
        """Delete an object whatever it is, as somebody else."""
        with self._lock:
            self._delete(None, bucket, name)

    def look(self, bucket: str, name: str) -> dict[str, Any] | None:
        """The properties of an object, None where there is none."""
        answer = self._send("GET", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}")
        return json.loads(answer.body) if answer.is_success else None

    def content(self, bucket: str, name: str) -> bytes | None:
        """The bytes of an object, None where there is none."""
        answer = self._send("GET", f"/download/storage/v1/b/{bucket}/o/{quote(name, safe='')}?alt=media")
        return answer.body if answer.is_success else None

    def names(self, bucket: str, prefix: str) -> dict[str, str]:
        """Name and CRC32C of all objects with this prefix."""
        answer = self._send("GET", f"/storage/v1/b/{bucket}/o?{urlencode({'prefix': prefix})}")
        return {item["name"]: item["crc32c"] for item in json.loads(answer.body).get("items", [])}

    def _write(self, bucket: str, described: dict[str, Any], content: bytes, expect: int | None) -> Answer:
        wrong = _wrong_checksum(described, content)
        if wrong:
            return _error(400, f"Provided {wrong} doesn't match the one calculated")
        boundary = "of-the-proxy"
        parts = [
            (b"application/json", json.dumps({k: v for k, v in described.items() if k not in _CHECKSUMS}).encode()),
            (b"application/octet-stream", content),
        ]
        body = b"".join(b"--%b\r\ncontent-type: %b\r\n\r\n%b\r\n" % (boundary.encode(), *part) for part in parts)
        condition = "" if expect is None else f"&ifGenerationMatch={expect}"
        answer = self._send(
            "POST",
            f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart{condition}",
            body + b"--%b--" % boundary.encode(),
            {"content-type": f'multipart/related; boundary="{boundary}"'},
        )
        if answer.is_success:
            self.deleted.pop((bucket, described["name"]), None)
        return answer

    def _start(self, request: Request, bucket: str, name: str) -> Answer:
        expect = _generation(request, "ifGenerationMatch")
        if not self._holds(bucket, name, expect):
            return _error(412, "conditionNotMet")
        self._n_sessions += 1
        key = f"secret-{self._n_sessions}"
        self._sessions[key] = Session(bucket, json.loads(request.body), expect)
        return Answer(200, {"location": f"{self._url}/upload/storage/v1/b/{bucket}/o?upload_id={key}"})

    def _continue(self, request: Request, call: Call) -> Answer:
        key = request.query["upload_id"]
        session = self._sessions.get(key)
        if session is None:
            return _error(404, "no such upload")
        if call is Call.CANCEL:
            del self._sessions[key]
            return Answer(499)
        if session.answer is not None:
            return session.answer
        span, _, total = request.headers["content-range"].removeprefix("bytes ").partition("/")
        if span != "*":
            start = int(span.partition("-")[0])
            if start > len(session.data) or (total == "*" and len(request.body) % _CHUNK_UNIT):
                return _error(400, f"bytes {span} do not follow {len(session.data)}, or are no multiple of 256 KiB")
            session.data += request.body[len(session.data) - start :]
        if call is Call.CHUNK or len(session.data) < int(total):
            return Answer(308, {"range": f"bytes=0-{len(session.data) - 1}"} if session.data else {})
        prefix = "x-goog-meta-"
        late = {k[len(prefix) :]: v for k, v in request.headers.items() if k.startswith(prefix)}
        described = session.described | {"metadata": session.described.get("metadata", {}) | late}
        described |= _hash_header(request.headers.get("x-goog-hash", ""))
        session.answer = self._write(session.bucket, described, bytes(session.data), session.expect)
        session.data = bytearray()
        return session.answer

    @property
    def open_sessions(self) -> int:
        """Resumable uploads that have begun, and have neither ended nor been cancelled."""
        return sum(session.answer is None for session in self._sessions.values())

    def _delete(self, expect: int | None, bucket: str, name: str) -> Answer:
        found = self.look(bucket, name)
        if found is not None and expect is not None and int(found["generation"]) != expect:
            return _error(412, "conditionNotMet")
        answer = self._send("DELETE", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}")
        if not answer.is_success:
            return answer
        if found is not None:
            self.deleted[bucket, name] = found
        return Answer(204)

    def _read(self, request: Request, call: Call, bucket: str, name: str) -> Answer:
        wanted = _generation(request, "generation")
        found = self.look(bucket, name) if wanted is not None or call is not Call.STAT else None
        if wanted is not None and (found is None or int(found["generation"]) != wanted):
            return _error(404, f"No such object: {bucket}/{name}")
        answer = self._forward(request)
        if not answer.is_success or call is Call.STAT or found is None:
            return answer
        return Answer(answer.status, answer.headers | {"x-goog-stored-content-length": found["size"]}, answer.body)

    def _holds(self, bucket: str, name: str, expect: int | None) -> bool:
        found = self.look(bucket, name)
        return expect is None or expect == (0 if found is None else int(found["generation"]))

    def _forward(self, request: Request) -> Answer:
        """Ask the emulator, without the generation, which it does not survive."""
        parts = urlsplit(request.target)
        query = urlencode({key: value for key, value in request.query.items() if key != "generation"})
        headers = {key: value for key, value in request.headers.items() if key in ("range", "content-type")}
        return self._send(request.method, f"{parts.path}?{query}", request.body, headers)

    def _send(self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
        connection = getattr(self._connections, "own", None)
        if connection is None:
            connection = self._connections.own = HTTPConnection(self._address)
        connection.request(method, target, body, headers or {})
        response = connection.getresponse()
        data = response.read()
        kept = {key.lower(): value for key, value in response.getheaders() if key.lower() in _PASSED_ON}
        if kept.get("content-type", "").startswith("application/json"):
            data = data.replace(self._host.encode(), self._url.encode())
        return Answer(response.status, kept, data)

    def close_connection(self) -> None:
        """Close this thread's connection to the emulator."""
        connection = getattr(self._connections, "own", None)
        if connection is not None:
            connection.close()
            del self._connections.own


_CHECKSUMS = ("crc32c", "md5Hash")


def _wrong_checksum(described: dict[str, Any], content: bytes) -> str:
    """The name of the first checksum that the content does not have, or nothing."""
    has = {
        "crc32c": base64.b64encode(google_crc32c.value(content).to_bytes(4, "big")).decode(),
        "md5Hash": base64.b64encode(md5(content, usedforsecurity=False).digest()).decode(),
    }
    return next((name for name in _CHECKSUMS if described.get(name, has[name]) != has[name]), "")


def _hash_header(value: str) -> dict[str, str]:
    """What a `x-goog-hash` header says, in the words of an object's properties."""
    pairs = dict(item.strip().split("=", 1) for item in value.split(",") if item.strip())
    return {{"crc32c": "crc32c", "md5": "md5Hash"}[key]: text for key, text in pairs.items()}


def _generation(request: Request, name: str) -> int | None:
    text = request.query.get(name)
    return None if text is None else int(text)


def _error(status: int, message: str) -> Answer:
    body = json.dumps({"error": {"code": status, "message": message}}).encode()
    return Answer(status, {"content-type": "application/json"}, body)


def _split_multipart(request: Request) -> tuple[dict[str, Any], bytes]:
    """The description and the bytes of an upload in one request."""
    boundary = request.headers["content-type"].partition("boundary=")[2].strip("'\"").encode()
    first, rest = request.body.split(b"--" + boundary + b"\r\n", 2)[1:]
    described = json.loads(message_from_bytes(first.lstrip(b"\r\n")).get_payload())
    return described, rest.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n--" + boundary + b"--")
