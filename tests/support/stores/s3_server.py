"""A real S3 server for tests: SeaweedFS, started on free ports, one fresh bucket a test.

`writer` may do everything, `outsider` nothing here, and whoever asks without a signature may read one bucket, the
public one. Faults that it cannot produce come from `flaky_proxy`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from support.local_servers import run_server

PUBLIC = "public"

_BUCKETS = count(1)
_IDENTITIES = {
    "identities": [
        {
            "name": "writer",
            "credentials": [{"accessKey": "writer", "secretKey": "writer-secret"}],
            "actions": ["Admin", "Read", "Write", "List"],
        },
        {
            "name": "outsider",
            "credentials": [{"accessKey": "outsider", "secretKey": "outsider-secret"}],
            "actions": ["Read:elsewhere", "List:elsewhere"],
        },
        {"name": "anonymous", "actions": [f"Read:{PUBLIC}", f"List:{PUBLIC}"]},
    ]
}
_PORTS = ["s3.port", "s3.port.grpc", "s3.port.iceberg", "s3.port.lance", "admin.port", "admin.port.grpc"]
_PORTS += [f"{part}.port{kind}" for part in ("master", "volume", "filer") for kind in ("", ".grpc")]


@pytest.fixture(scope="session")
def s3_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running server. The variables that clients look at are set by `s3_bucket`, for one test."""
    folder = tmp_path_factory.mktemp("s3")
    config = folder / "identities.json"
    config.write_text(json.dumps(_IDENTITIES), encoding="utf-8")
    program = [str(Path(sys.executable).parent / "weed"), "-logtostderr", "mini", f"-dir={folder}"]
    program += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.config={config}", "-webdav=false", "-admin.ui=false"]
    # Every bucket takes volumes of its own. By itself the server allows only as many as its free disk could hold full.
    program += ["-volume.max=10000"]
    tried: list[int] = []

    def command(ports: list[int]) -> list[str]:
        tried.extend(ports)
        return [*program, *(f"-{name}={port}" for name, port in zip(_PORTS, ports, strict=True))]

    try:
        with run_server(command, len(_PORTS), b"Start Seaweed S3 API Server", cwd=folder) as ports:
            host = f"http://127.0.0.1:{ports[_PORTS.index('s3.port')]}"
            s3_writer(host).create_bucket(Bucket=PUBLIC)
            yield host
    finally:
        for port in tried:
            for path in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                path.unlink()


@cache
def s3_writer(host: str) -> Any:
    """A client that may do everything; it tries again while the parts of the server find each other."""
    return boto3.client(
        "s3",
        endpoint_url=host,
        region_name="us-east-1",
        aws_access_key_id="writer",
        aws_secret_access_key="writer-secret",
        config=Config(retries={"mode": "standard", "total_max_attempts": 10}),
    )


def use_s3(host: str, monkeypatch: pytest.MonkeyPatch, who: str | None) -> None:
    """Make `s3://` mean this server, for this principal (None: nobody), here and in processes that are started."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", host)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    if who is not None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", who)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"{who}-secret")


@pytest.fixture
def s3_bucket(s3_host: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a new bucket, in the server that `s3://` means for this test."""
    use_s3(s3_host, monkeypatch, "writer")
    name = f"bucket-{os.getpid()}-{next(_BUCKETS)}"
    s3_writer(s3_host).create_bucket(Bucket=name)
    return name


def put_s3(host: str, bucket: str, prefix: str) -> Callable[[str, bytes], None]:
    """What writes an object below a prefix."""
    client = s3_writer(host)

    def put(name: str, data: bytes) -> None:
        client.put_object(Bucket=bucket, Key=f"{prefix}{name}", Body=data)

    return put
