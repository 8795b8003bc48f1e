"""A proxy before a real HTTP service, for faults that the service cannot produce. They are planted for one request
at a time; all other requests go through unchanged, with the host that they were signed for."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from support.local_servers import Handler, serve


@dataclass(frozen=True)
class Fault:
    """What the next matching request gets: a status with a body, or (0) a connection that breaks after so many bytes of
    the answer, or one that goes silent there until the client hangs up (`stalls`). `meanwhile` happens just before, and
    the request then goes through."""

    method: str
    path: str
    status: int = 0
    body: bytes = b""
    after: int = 0
    stalls: bool = False
    meanwhile: Callable[[], object] | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Proxy:
    """`requests` are lines of method and path; `ranges` what was asked for of bodies."""

    target: str
    url: str = ""
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Handler(Handler):
    proxy: Proxy

    def _handle(self) -> None:
        with self.proxy.lock:
            self.proxy.requests.append(f"{self.command} {self.path}")
            if "range" in self.headers:
                self.proxy.ranges.append(self.headers["range"])
            matches = [f for f in self.proxy.faults if f.method == self.command and f.path in self.path]
            fault = matches[0] if matches else None
            if fault is not None:
                self.proxy.faults.remove(fault)
        if fault is not None and fault.meanwhile is not None:
            fault.meanwhile()
            fault = None
        if fault is not None and fault.status:
            self._send(fault.status, {"content-type": "application/xml", **fault.headers}, fault.body, len(fault.body))
            return
        status, headers, body = self._forward()
        if fault is None:
            self._send(status, headers, body, len(body))
            return
        self._send(status, headers, body[: fault.after], len(body))
        self.wfile.flush()
        if fault.stalls:
            self.connection.recv(1)  # until the client hangs up
        self.close_connection = True
        self.connection.shutdown(2)

    do_GET = do_HEAD = _handle

    def _forward(self) -> tuple[int, dict[str, str], bytes]:
        target = http.client.HTTPConnection(urlsplit(self.proxy.target).netloc)
        target.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            target.putheader(name, value)
        target.endheaders()
        response = target.getresponse()
        body = response.read()
        headers = {name.lower(): value for name, value in response.getheaders()}
        target.close()
        return response.status, headers, body

    def _send(self, status: int, headers: dict[str, str], body: bytes, size: int) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name not in ("date", "server", "connection", "transfer-encoding"):
                self.send_header(name, value)
        if "content-length" not in headers:
            self.send_header("content-length", str(size))
        self.end_headers()
        if self.command != "HEAD":  # bytes after its headers would be taken for the next answer, if they come late
            self.wfile.write(body)


@contextmanager
def serve_flaky_proxy(target: str) -> Iterator[Proxy]:
    """A running proxy on a free port, until the end of the block."""
    proxy = Proxy(target)
    with serve(type("_ProxyHandler", (_Handler,), {"proxy": proxy})) as port:
        proxy.url = f"http://127.0.0.1:{port}"
        yield proxy
