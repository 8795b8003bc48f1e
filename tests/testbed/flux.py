"""Flux on the test bed: its controller of Kustomizations, and a small stand-in for its source controller.

The stand-in serves the commits of a git repository as the artifacts of a GitRepository; what the controller makes of
them is its own.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from testbed.cluster import Testbed
from testbed.git import WorkingCopy
from testbed.ports import hold_ports
from testbed.programs import find_kustomize_controller

SHARD = "sharding.fluxcd.io/key"
SOURCES = "source.toolkit.fluxcd.io"
_KINDS = {"GitRepository": "gitrepositories", "OCIRepository": "ocirepositories", "Bucket": "buckets"}


class Repository:
    """A git repository and the GitRepository that stands for it. `name`: of both, in a namespace."""

    def __init__(self, bed: Testbed, folder: Path, namespace: str, name: str, url: str) -> None:
        self._bed = bed
        self._served = folder
        self._copy = WorkingCopy(folder / f"{namespace}-{name}")
        self._url = url
        self._path = f"/apis/{SOURCES}/v1/namespaces/{namespace}/gitrepositories/{name}/status"
        body = {
            "apiVersion": f"{SOURCES}/v1",
            "kind": "GitRepository",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"interval": "1h", "url": "https://git.example.org/jobs"},
        }
        bed.apply(body)

    def commit(self, files: Mapping[str, Mapping[str, Any]], words: str) -> str:
        """Write manifests, commit them, and let the controller know; the revision."""
        commit = self._copy.commit(files, words)
        archive = self._served / f"{commit}.tar.gz"
        self._copy.git("archive", "--format=tar.gz", f"--output={archive}", "HEAD")
        self._publish(f"main@sha1:{commit}", archive)
        return f"main@sha1:{commit}"

    def _publish(self, revision: str, archive: Path) -> None:
        data = archive.read_bytes()
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "Succeeded",
            "message": f"stored {revision}",
            "lastTransitionTime": now,
        }
        artifact = {
            "path": archive.name,
            "url": f"{self._url}/{archive.name}",
            "revision": revision,
            "digest": f"sha256:{hashlib.sha256(data).hexdigest()}",
            "size": len(data),
            "lastUpdateTime": now,
        }
        status = {"observedGeneration": 1, "conditions": [ready], "artifact": artifact}
        self._bed.merge(self._path, {"status": status})


class Flux:
    """A running controller. It watches all namespaces, for Kustomizations with the label `SHARD`: `key`."""

    def __init__(self, bed: Testbed, folder: Path, url: str, key: str) -> None:
        self._bed, self._folder, self._url = bed, folder, url
        self.key = key

    def repository(self, namespace: str, name: str) -> Repository:
        """A new one, without a commit."""
        return Repository(self._bed, self._folder, namespace, name, self._url)


@contextmanager
def run_flux(bed: Testbed, folder: Path) -> Iterator[Flux]:
    """One for this process: others on the test bed have their own. Raises `Unavailable`."""
    program, crds = find_kustomize_controller()
    key = str(os.getpid())
    name = f"kustomize-controller-{key}"
    bed.apply_crds(sorted(crds.glob("*.yaml")))
    bed.apply(*(_stand_in(kind, plural) for kind, plural in _KINDS.items()))
    for plural in _KINDS.values():
        bed.wait(plural, partial(bed.answers, f"/apis/{SOURCES}/v1/{plural}"))
    metrics, health = hold_ports(2)
    bed.processes.start(
        name,
        *(program, "--metrics-addr", f"127.0.0.1:{metrics}", "--health-addr", f"127.0.0.1:{health}"),
        *("--watch-all-namespaces", "--enable-leader-election=false", "--interval-jitter-percentage=0"),
        f"--watch-label-selector={SHARD}={key}",
        "--feature-gates=CancelHealthCheckOnNewRevision=true",  # docs/gitops.md says why
        environment={"KUBECONFIG": str(bed.kubeconfig), "RUNTIME_NAMESPACE": "default"},
    )
    handler = partial(_Quiet, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield Flux(bed, folder, f"http://127.0.0.1:{server.server_address[1]}", key)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        bed.processes.stop(name)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _stand_in(kind: str, plural: str) -> dict[str, Any]:
    """A kind of Flux' sources, of which the controller reads only the status."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{SOURCES}"},
        "spec": {
            "group": SOURCES,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [version],
        },
    }
