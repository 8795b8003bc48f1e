"""Operators as processes on the test bed, and jobs as their users see them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubernetes import client

COMMAND = Path(sys.executable).with_name("tokenization-operator")
PLURAL = ("tokenization.dev", "v1alpha1")
DEADLINE_S = 90.0


@contextmanager
def operator(
    kubeconfig: Path, namespace: str, log: Path, *, image: str, **settings: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the operator that watches one namespace."""
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "TOKENIZATION_NAMESPACES": namespace,
        "TOKENIZATION_WORKER_IMAGE": image,
        "TOKENIZATION_RAY_VERSION": "2.60.0",
        "TOKENIZATION_RESYNC_SECONDS": "5",
        "TOKENIZATION_RETRY_DELAY_SECONDS": "1",
        **settings,
    }
    with log.open("ab") as file:
        process = subprocess.Popen(
            [str(COMMAND), "--metrics-port", "0", "--health-port", "0"], stdout=file, stderr=file, env=environment
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


class Jobs:
    """The TokenizationJobs of a namespace."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._custom: Any = client.CustomObjectsApi(api)
        self._namespace = namespace

    def apply(self, name: str, spec: dict[str, Any]) -> None:
        body = {"apiVersion": "/".join(PLURAL), "kind": "TokenizationJob", "metadata": {"name": name}, "spec": spec}
        self._custom.create_namespaced_custom_object(*PLURAL, self._namespace, "tokenizationjobs", body)

    def edit(self, name: str, spec: dict[str, Any]) -> None:
        self._custom.patch_namespaced_custom_object(
            *PLURAL,
            self._namespace,
            "tokenizationjobs",
            name,
            {"spec": spec},
            _content_type="application/merge-patch+json",
        )

    def status(self, name: str) -> dict[str, Any]:
        found = self._custom.get_namespaced_custom_object(*PLURAL, self._namespace, "tokenizationjobs", name)
        status: dict[str, Any] = found.get("status") or {}
        return status

    def ray_jobs(self) -> list[dict[str, Any]]:
        found = self._custom.list_namespaced_custom_object("ray.io", "v1", self._namespace, "rayjobs")
        items: list[dict[str, Any]] = found["items"]
        return items

    def wait(
        self, name: str, holds: Callable[[dict[str, Any]], bool], deadline_s: float = DEADLINE_S
    ) -> dict[str, Any]:
        """The job's status once that holds."""
        deadline = time.monotonic() + deadline_s
        while not holds(status := self.status(name)):
            assert time.monotonic() < deadline, status
            time.sleep(0.1)
        return status
