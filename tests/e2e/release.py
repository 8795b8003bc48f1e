"""The chart on a real cluster, installed by Helm as its users install it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from e2e.node import RealCluster
from e2e.runs import RUN_S
from support.cluster.jobs import wait_for
from support.cluster.operators import helm
from support.forked_commands import TOKJOB

NAME = "tokenization"
NAMESPACE = "tokenization-system"
_PATIENCE = ("--timeout", f"{RUN_S:.0f}s")
_RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


@dataclass(frozen=True)
class Version:
    """A chart with the images that belong to it, by their names."""

    chart: Path
    operator: str
    worker: str

    def values(self) -> list[str]:
        """As words for Helm."""
        words = ["--set-json", 'operator.resources={"requests":{"cpu":"50m","memory":"128Mi"}}']
        for target, name in (("operator", self.operator), ("worker", self.worker)):
            repository, _, tag = name.rpartition(":")
            values = f"{target}.image.repository={repository},{target}.image.tag={tag}"
            words += ["--set", values, "--set", f"{target}.imagePullPolicy=Never"]
        return words


class Release:
    """One in a namespace of its own; all namespaces are under the restricted standard of Pod security."""

    def __init__(self, cluster: RealCluster, version: Version) -> None:
        self._cluster = cluster
        self._flags = ["--namespace", NAMESPACE, "--kubeconfig", str(cluster.kubeconfig)]
        self._version = version

    def install(self) -> None:
        """Returns when the operator is ready."""
        self._make_namespace(NAMESPACE)
        helm("install", NAME, str(self._version.chart), *self._flags, *self._version.values(), "--wait", *_PATIENCE)

    def upgrade(self, *values: str) -> None:
        """Returns when the next operator is ready."""
        version = self._version
        helm("upgrade", NAME, str(version.chart), *self._flags, *version.values(), *values, "--wait", *_PATIENCE)

    def use(self, version: Version) -> None:
        """Upgrade or downgrade: returns when the operator of that version is ready."""
        if version != self._version:
            self._version = version
            self.upgrade()

    def test(self) -> None:
        """As somebody who has just installed it: its own test passes."""
        helm("test", NAME, *self._flags, *_PATIENCE)

    def prepare(self, namespace: str) -> None:
        """Make a namespace, and let jobs run there."""
        self._make_namespace(namespace)
        objects = subprocess.run([TOKJOB, "namespace-manifest", namespace], capture_output=True, text=True, check=True)
        self._cluster.do("apply", "-f", "-", text=objects.stdout)

    def scale(self, replicas: int) -> None:
        """Kill the operator, or have it again; returns when it is so."""
        self._cluster.do("-n", NAMESPACE, "scale", f"deployment/{NAME}", f"--replicas={replicas}")
        if replicas:
            self._cluster.do("-n", NAMESPACE, "rollout", "status", f"deployment/{NAME}", "=".join(_PATIENCE))
        else:
            self._cluster.do("-n", NAMESPACE, "delete", "pods", "--all", "--grace-period=0", "--force")
            wait_for(lambda: self._cluster.do("-n", NAMESPACE, "get", "pods", "-o", "name"), lambda names: not names)

    def _make_namespace(self, name: str) -> None:
        self._cluster.do("create", "namespace", name)
        self._cluster.do("label", "namespace", name, _RESTRICTED)
