"""Operators as processes on the test bed, installed by the chart, with the rights that it gives them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client

from support.cluster.jobs import DEADLINE_S
from support.forked_commands import OPERATOR, Forked
from support.places import CHECKOUT
from testbed.accounts import account_kubeconfig
from testbed.cluster import Testbed
from testbed.programs import find_helm

CHART = CHECKOUT / "charts" / "tokenization-operator"
FAST = {"TOKENIZATION_RESYNC_SECONDS": "5", "TOKENIZATION_RETRY_DELAY_SECONDS": "1"}
RARELY: dict[str, Any] = {"TOKENIZATION_RESYNC_SECONDS": "3600"}
"""What is seen although the operator looks at all jobs so rarely is seen by itself, on a machine of whichever speed."""

NEVER_AGAIN: dict[str, Any] = {"TOKENIZATION_RETRY_DELAY_SECONDS": "600"}
"""What is Retrying stays so until every test that looks at it has seen it; usually that lasts a second."""

IMAGE = "testbed/worker:plan-run.driver-run"
"""By its tag: plan and driver are real processes of this machine."""

WORKERS = "tokenization-worker"
"""The ServiceAccount of jobs' Pods."""

IMAGES = ('operator.image.repository="testbed/operator"', 'worker.image.repository="testbed/worker"')
"""The values that the chart requires."""

_NOT_APPLIED = ("Deployment", "CustomResourceDefinition", "Pod")


def helm(*words: str) -> str:
    """What Helm says; raises `AssertionError` with its words."""
    done = subprocess.run([str(find_helm()), *words], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return done.stdout


def render(namespace: str, *values: str) -> list[dict[str, Any]]:
    """The objects of a release; `values` as after --set-json. Who reports in tests is no Pod, as a rule."""
    flags = [word for value in (*IMAGES, "writerPolicy.enabled=false", *values) for word in ("--set-json", value)]
    text = helm("template", f"op-{namespace}"[:50], str(CHART), "--namespace", namespace, *flags)
    return [each for each in yaml.safe_load_all(text) if each]


def operator_container(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the Deployment among the objects of a release."""
    [deployment] = [each for each in objects if each["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return dict(container)


def operator_pod(namespace: str, *values: str) -> dict[str, Any]:
    """The Pod of a release's Deployment."""
    [deployment] = [each for each in render(namespace, *values) if each["kind"] == "Deployment"]
    template = deployment["spec"]["template"]
    metadata = {"name": "operator", "namespace": namespace, "labels": template["metadata"]["labels"]}
    spec = template["spec"] | {"serviceAccountName": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


Process = subprocess.Popen[bytes] | Forked


@contextmanager
def run_operator(
    container: dict[str, Any],
    kubeconfig: Path,
    log: Path,
    *,
    image: str | None = IMAGE,
    health_port: int = 0,
    metrics_port: int = 0,
    flags: Sequence[str] = (),
    start: type[Process] = Forked,
    **more: str,
) -> Iterator[Process]:
    """A process with the environment of the chart's container; `image`: of the jobs' Pods, if not the chart's."""
    own = {each["name"]: each["value"] for each in container["env"] if "value" in each and each["name"] != "HOME"}
    mine = {"KUBECONFIG": str(kubeconfig)} | ({"TOKENIZATION_WORKER_IMAGE": image} if image else {})
    ports = ["--metrics-port", str(metrics_port), "--health-port", str(health_port)]
    with log.open("ab") as file, Path(os.devnull).open("rb") as nothing:
        environment = {**os.environ, **own, **FAST, **mine, **more}
        out, nothing_in = file.fileno(), nothing.fileno()
        process = start([OPERATOR, *ports, *flags], stdin=nothing_in, stdout=out, stderr=out, env=environment)
    try:
        yield process
    finally:
        stop(process)


class Release:
    """The chart in a namespace, and its operator outside of it. `everywhere`: it watches all namespaces."""

    def __init__(
        self, bed: Testbed, api: client.ApiClient, namespace: str, folder: Path, *values: str, everywhere: bool = False
    ) -> None:
        jobs = json.dumps([{"name": namespace}])
        watched = json.dumps([] if everywhere else [namespace])
        objects = render(namespace, f"jobNamespaces={jobs}", f"watchNamespaces={watched}", *values)
        bed.apply(*(each for each in objects if each["kind"] not in _NOT_APPLIED))
        self.container = operator_container(objects)
        accounts = [each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"]
        [self.account] = [name for name in accounts if name != WORKERS]
        self.namespace = namespace
        self._api, self._folder = api, folder
        self.log = folder / "operator.log"

    @contextmanager
    def operator(self, *, server: str | None = None, has_lease: bool = False, **more: Any) -> Iterator[Process]:
        """The operator as a process, see `run_operator`; `server`: of the API, by another way. Without a Lease two of
        them work at once, which is harder, and a new one need not wait until that of a killed one has run out."""
        path = self._folder / f"kubeconfig-{os.urandom(4).hex()}"
        kubeconfig = account_kubeconfig(self._api, self.namespace, self.account, path, server=server)
        pod = {"TOKENIZATION_LEASE_NAMESPACE": self.namespace, "TOKENIZATION_POD_NAME": f"operator-{path.name[-8:]}"}
        lease = {} if has_lease else {"TOKENIZATION_LEASE_NAME": ""}
        with run_operator(self.container, kubeconfig, self.log, **pod | lease | more) as process:
            yield process

    def errors(self) -> list[dict[str, Any]]:
        """What the operators of this release have called errors."""
        lines = [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines() if line[:1] == "{"]
        return [line for line in lines if line.get("severity") in ("error", "critical")]


def stop(process: Process, patience_s: float = DEADLINE_S) -> int:
    """End it as Kubernetes does; its exit code."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)  # one that a test has frozen would not hear of its end
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise
