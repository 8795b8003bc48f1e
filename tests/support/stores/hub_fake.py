"""A small Hugging Face Hub of our own: the endpoints that reading a dataset needs, as the Hub's documentation has them.

    GET      /api/datasets/{org}/{name}/revision/{revision}             the commit (`sha`)
    GET      /api/datasets/{org}/{name}/tree/{revision}/{folder}        pages, the next one in a `Link` header
    HEAD GET /datasets/{org}/{name}/resolve/{revision}/{path}           small files; for large ones the way to /store/
    HEAD GET /{org}/{name}/resolve/{revision}/{path}                    the same for models
    GET      /store/{sha256}?signed={n}                                 another host, which knows no token

Commits are frozen; branches and tags move. A file is large (LFS) from `LARGE` bytes on. Faults are planted for one
request at a time.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from huggingface_hub.utils import close_session

from support.local_servers import Handler, serve

LARGE = 64
PAGE = 1000
TOKEN = "hf_of_a_test"


@dataclass(frozen=True)
class Fault:
    """What the next matching request gets instead. `status` 0 breaks the connection, before the answer or, with
    `after` bytes of it, within (`stalls`: it goes silent there until the client hangs up); `meanwhile` is what happens
    just before, and the request is then served as usual."""

    method: str
    path: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    after: int | None = None
    stalls: bool = False
    meanwhile: Callable[[], object] | None = None


@dataclass
class FakeHub:
    """Datasets by name, models by `models/org/name`; `private` and `gated` ones want the token, and no one's
    request to `gated` was granted until `has_access`."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[tuple[str, str], str] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    gated: set[str] = field(default_factory=set)
    has_access: bool = False
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    signed: int = 1
    lock: threading.RLock = field(default_factory=threading.RLock)
    url: str = ""
    store_url: str = ""

    def put(self, dataset: str, name: str, data: bytes, revision: str = "main") -> str:
        """Commit one more file to a branch; returns the commit."""
        return self.commit(dataset, self.files(dataset, revision) | {name: data}, revision)

    def commit(self, dataset: str, files: dict[str, bytes], revision: str = "main") -> str:
        """Make these all the files of a branch; returns the commit."""
        with self.lock:
            number = str(len(self.commits)).encode()
            commit = hashlib.sha1(dataset.encode() + number).hexdigest()
            self.commits[commit] = dict(files)
            self.refs[dataset, revision] = self.refs[dataset, commit] = commit
            return commit

    def files(self, dataset: str, revision: str = "main") -> dict[str, bytes]:
        return self.commits.get(self.refs.get((dataset, revision), ""), {})

    def forget(self, dataset: str, commit: str) -> None:
        """Rewrite the history without this commit."""
        del self.refs[dataset, commit]

    def paths(self, method: str, part: str) -> list[str]:
        """The requests so far whose address holds `part`."""
        return [path for verb, path, _ in self.requests if verb == method and part in path]


def _checksum(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class _Handler(Handler):
    hub: FakeHub

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        with self.hub.lock:
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.hub.requests.append((self.command, self.path, headers))
            matches = [f for f in self.hub.faults if f.method == self.command and f.path in self.path]
            fault = matches[0] if matches else None
            if fault is not None:
                self.hub.faults.remove(fault)
                if fault.meanwhile is not None:
                    fault.meanwhile()
            if fault is None or fault.after is not None or fault.meanwhile is not None:
                status, more, body = self._answer(parts.path, parse_qs(parts.query))
            elif fault.status:
                status, more, body = fault.status, fault.headers, fault.body
            else:
                self._hang_up()
                return
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        if "content-length" not in more:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault is not None and fault.after is not None:
            self.wfile.write(body[: fault.after])
            self.wfile.flush()
            if fault.stalls:
                self.connection.recv(1)
            self._hang_up()
            return
        self.wfile.write(body)

    do_GET = do_HEAD = _handle

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(2)

    def _answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, str], bytes]:
        if path.startswith("/store/"):
            return self._store(path.removeprefix("/store/"), query)
        api = re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/(revision|tree)/([^/]+)(?:/(.*))?", path)
        if api is not None:
            dataset, verb, revision, folder = api[1], api[2], unquote(api[3]), unquote(api[4] or "")
        else:
            found = re.fullmatch(r"(/datasets)?/([^/]+/[^/]+)/resolve/([^/]+)/(.*)", path)
            if found is None:
                return _error(404, "", "Not Found")
            dataset = found[2] if found[1] else f"models/{found[2]}"
            verb, revision, folder = "resolve", unquote(found[3]), unquote(found[4])
        refused = self._refuse(dataset, verb)
        if refused is not None:
            return refused
        commit = self.hub.refs.get((dataset, revision))
        if commit is None:
            return _error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if verb == "revision":
            return _json({"id": dataset, "sha": commit})
        files = self.hub.commits[commit]
        return self._tree(path, query, files, folder) if verb == "tree" else self._resolve(commit, files, folder)

    def _refuse(self, dataset: str, verb: str) -> tuple[int, dict[str, str], bytes] | None:
        said = self.headers.get("authorization")
        if said not in (None, f"Bearer {TOKEN}"):
            return _error(401, "", "Invalid credentials in Authorization header")
        exists = any(name == dataset for name, _ in self.hub.refs)
        if not exists or (dataset in self.hub.private and said is None):
            return _error(401 if said is None else 404, "RepoNotFound", "Repository not found")
        if dataset in self.hub.gated and verb == "resolve" and not (said and self.hub.has_access):
            words = f"Access to dataset {dataset} is restricted. You must have access to it."
            return _error(403 if said else 401, "GatedRepo", words)
        return None

    def _tree(
        self, path: str, query: dict[str, list[str]], files: dict[str, bytes], folder: str
    ) -> tuple[int, dict[str, str], bytes]:
        prefix = folder + "/" if folder else ""
        below = {name: data for name, data in sorted(files.items()) if name.startswith(prefix)}
        if prefix and not below:
            return _error(404, "EntryNotFound", f"{folder} does not exist")
        is_recursive = query["recursive"] == ["true"]
        rows: dict[str, dict[str, Any]] = {}
        for name, data in below.items():
            first, *more = name.removeprefix(prefix).split("/")
            if more and not is_recursive:
                rows[first] = {"type": "directory", "path": prefix + first, "oid": "0" * 40, "size": 0}
                continue
            rows[name] = {"type": "file", "path": name, "size": len(data), "oid": _checksum(data)}
            if len(data) >= LARGE:
                sha256 = hashlib.sha256(data).hexdigest()
                rows[name]["lfs"] = {"oid": sha256, "size": len(data), "pointerSize": 134}
                rows[name]["oid"] = _checksum(sha256.encode())
        start = int(query.get("cursor", ["0"])[0])
        page = list(rows.values())[start : start + PAGE]
        more_headers = {}
        if start + PAGE < len(rows):
            address = f"{self.hub.url}{path}?recursive={str(is_recursive).lower()}&cursor={start + PAGE}"
            more_headers["link"] = f'<{address}>; rel="next"'
        return _json(page, more_headers)

    def _resolve(self, commit: str, files: dict[str, bytes], name: str) -> tuple[int, dict[str, str], bytes]:
        headers = {"x-repo-commit": commit}
        if name not in files:
            return _error(404, "EntryNotFound", f"{name} does not exist", headers)
        data = files[name]
        if len(data) < LARGE:
            return self._part(data, headers | {"etag": f'"{_checksum(data)}"'})
        sha256 = hashlib.sha256(data).hexdigest()
        headers |= {"x-linked-etag": f'"{sha256}"', "x-linked-size": str(len(data))}
        headers["location"] = f"{self.hub.store_url}/store/{sha256}?signed={self.hub.signed}"
        return 302, headers, b""

    def _store(self, sha256: str, query: dict[str, list[str]]) -> tuple[int, dict[str, str], bytes]:
        if query["signed"] != [str(self.hub.signed)]:
            return 403, {"content-type": "application/xml"}, b"<Error><Code>AccessDenied</Code></Error>"
        found = [data for files in self.hub.commits.values() for data in files.values()]
        data = next(data for data in found if hashlib.sha256(data).hexdigest() == sha256)
        return self._part(data, {"etag": f'"{sha256}"'})

    def _part(self, data: bytes, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        if self.command == "HEAD":
            return 200, headers | {"content-length": str(len(data))}, b""
        if wanted is None:
            return 200, headers, data
        start, end = int(wanted[1]), min(int(wanted[2]) + 1, len(data))
        if start >= end:
            return 416, headers, b""
        return 206, headers | {"content-range": f"bytes {start}-{end - 1}/{len(data)}"}, data[start:end]


def _json(value: object, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
    return 200, (headers or {}) | {"content-type": "application/json"}, json.dumps(value).encode()


def _error(
    status: int, code: str, words: str, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    said = {"x-error-message": words.encode("ascii", "replace").decode()} | ({"x-error-code": code} if code else {})
    body = json.dumps({"error": words}).encode()
    return status, (headers or {}) | said | {"content-type": "application/json"}, body


@contextmanager
def serve_fake_hub() -> Iterator[FakeHub]:
    """A running Hub on a free port, until the end of the block; its store is another host by name."""
    hub = FakeHub()
    with serve(type("_HubHandler", (_Handler,), {"hub": hub})) as port:
        hub.url, hub.store_url = f"http://127.0.0.1:{port}", f"http://localhost:{port}"
        yield hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A Hub that `hf://` means for this test, here and in processes that are started."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_OIDC_RESOURCE"):
        monkeypatch.delenv(name, raising=False)
    with serve_fake_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield hub
        close_session()  # the library's connections, which outlive the service
