"""Servers of tests on this machine, of our own and of others; each lives as long as its block."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import requests.sessions


def ask_without_proxies() -> None:
    """From now on requests of this process look for no proxy: the services are here, and `requests` goes through the
    whole environment twice for each call, a quarter of the time of the runs with faults (2026-11-22)."""
    requests.sessions.get_environ_proxies = lambda url, no_proxy=None: {}


class Handler(BaseHTTPRequestHandler):
    """Keeps connections open, answers at once and says nothing."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits 40 ms for the acknowledgement of its headers

    def log_message(self, format: str, *args: Any) -> None: ...


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is its own business."""


@contextmanager
def serve(handler: type[Handler]) -> Iterator[int]:
    """A server with `handler` on a free port of 127.0.0.1; the port."""
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def run_server(command: Sequence[str], sign: bytes, *, patience_s: float, cwd: Path | None = None) -> Iterator[None]:
    """A program that serves; entered once `sign` is in what it says on standard error, within `patience_s`."""
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    listening = threading.Event()

    def read_log() -> None:  # to its end, or the program stops when the pipe is full
        assert process.stderr is not None
        with process.stderr as log:
            for line in log:
                if sign in line:
                    listening.set()

    reader = threading.Thread(target=read_log)
    reader.start()
    try:
        assert listening.wait(patience_s), f"{command[0]} did not start"
        yield
    finally:
        process.kill()
        process.wait()
        reader.join()
