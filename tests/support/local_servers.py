"""Servers of tests on this machine, of our own and of others; each lives as long as its block."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import requests.sessions

_PATIENCE_S = 120.0
"""For a server to start."""


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


class _PortTaken(Exception):
    """A server has ended because of that."""


@contextmanager
def run_server(
    command: Callable[[list[int]], Sequence[str]], ports: int, sign: bytes, *, cwd: Path | None = None
) -> Iterator[list[int]]:
    """A program that serves; entered once `sign` is in what it says on standard error. `command` is told the ports.

    Each of them is free when it is chosen. Where another program has taken one meanwhile, others are chosen.
    """
    for is_last in (False, False, False, False, True):
        chosen = _free_ports(ports)
        with ExitStack() as running:
            try:
                running.enter_context(_running(command(chosen), sign, cwd))
            except _PortTaken:
                if is_last:
                    raise
                continue
            yield chosen
            return


def _free_ports(number: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@contextmanager
def _running(command: Sequence[str], sign: bytes, cwd: Path | None) -> Iterator[None]:
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    is_settled = threading.Event()
    is_listening = threading.Event()
    said: deque[bytes] = deque(maxlen=20)

    def read_log() -> None:  # to its end, or the program stops when the pipe is full
        assert process.stderr is not None
        with process.stderr as log:
            for line in log:
                said.append(line)
                if sign in line:
                    is_listening.set()
                    is_settled.set()
        is_settled.set()

    reader = threading.Thread(target=read_log)
    reader.start()
    try:
        is_settled.wait(_PATIENCE_S)
        if not is_listening.is_set():
            words = b"".join(list(said)).decode(errors="replace")
            if is_settled.is_set() and re.search("already in use|is not available", words):
                raise _PortTaken(words)
            raise AssertionError(f"{command[0]} did not start: {words}")
        yield
    finally:
        process.kill()
        process.wait()
        reader.join()
