"""Nodes without a machine: keeps them alive, and says of their Pods what a kubelet would say.

A Pod's image says what becomes of it: its tag is a list of ROLE-FATE, such as `worker:plan-run.driver-hold.worker-oom`.
Roles: `plan`, `driver` (KubeRay's submitter), `head`, `worker`. Fates:

    hold       it becomes Running and Ready, and stays so (what happens without a word)
    exit0 ...  its containers end with that code
    oom        its containers are killed for their memory
    missing    its image cannot be pulled
    run        its command runs here as a process, and its end is the Pod's

A deleted Pod goes away at once. Runs until it is ended.
"""

from __future__ import annotations

import argparse
import re
import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any

from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

ADDRESS = "192.0.2.254"
"""Of TEST-NET-1, as those of all Pods: the API server's proxy must not leave this machine."""

RENEW_S = 10.0
_ROLES = {"head": "head", "worker": "worker"}
_TPU = "google.com/tpu"
_GONE = frozenset({404, 409})


def now(*, micro: bool = False) -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S" + (".%fZ" if micro else "Z"))


def cpu_node(name: str) -> dict[str, Any]:
    """A node of ordinary CPUs, large enough for hundreds of Pods."""
    size = {"cpu": "1024", "memory": "8Ti", "ephemeral-storage": "100Ti", "pods": "2000"}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "capacity": size,
            "allocatable": size,
            "addresses": [{"type": "InternalIP", "address": ADDRESS}],
            "conditions": [_condition("Ready", True) | {"lastHeartbeatTime": now()}],
        },
    }


def tpu_node(name: str, accelerator: str, topology: str, chips: int) -> dict[str, Any]:
    """A TPU host as GKE labels and taints it."""
    node = cpu_node(name)
    node["metadata"]["labels"] |= {
        "cloud.google.com/gke-tpu-accelerator": accelerator,
        "cloud.google.com/gke-tpu-topology": topology,
    }
    node["spec"] = {"taints": [{"key": _TPU, "value": "present", "effect": "NoSchedule"}]}
    for size in (node["status"]["capacity"], node["status"]["allocatable"]):
        size |= {_TPU: str(chips), "cpu": "180", "memory": "720Gi", "pods": "110"}
    return node


NODES = (
    cpu_node("cpu-0"),
    *(tpu_node(f"v6e-2x2-{number}", "tpu-v6e-slice", "2x2", 4) for number in range(2)),
    *(tpu_node(f"v5e-2x4-{number}", "tpu-v5-lite-podslice", "2x4", 8) for number in range(2)),
)


def fate_of(pod: dict[str, Any]) -> str:
    """What is to become of a Pod."""
    labels = pod["metadata"].get("labels") or {}
    role = _ROLES.get(labels.get("ray.io/node-type", "")) or ("plan" if "tokenization.dev/job" in labels else "driver")
    tag = pod["spec"]["containers"][0]["image"].rpartition(":")[2]
    for part in tag.split("."):
        name, _, fate = part.partition("-")
        if name == role:
            return fate
    return "hold"


def status_of(pod: dict[str, Any], fate: str, address: str) -> dict[str, Any]:
    """What a kubelet would write of a Pod with that fate."""
    state: dict[str, Any]
    if fate == "missing":
        words = f'Back-off pulling image "{pod["spec"]["containers"][0]["image"]}": not found'
        state, phase = {"waiting": {"reason": "ImagePullBackOff", "message": words}}, "Pending"
    elif fate == "oom":
        state, phase = _terminated(137, "OOMKilled"), "Failed"
    elif ended := re.fullmatch(r"exit(\d+)", fate):
        code = int(ended[1])
        state, phase = _terminated(code, "Error" if code else "Completed"), "Failed" if code else "Succeeded"
    else:
        state, phase = {"running": {"startedAt": now()}}, "Running"
    is_up = phase == "Running"
    ready = ("ContainersReady", "Ready")
    return {
        "phase": phase,
        "hostIP": ADDRESS,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": now(),
        "conditions": [
            *(_condition(kind, True) for kind in ("PodScheduled", "Initialized")),
            *(_condition(kind, is_up) for kind in ready),
        ],
        "initContainerStatuses": [
            _container(pod, each, _terminated(0, "Completed"), is_ready=True)
            for each in pod["spec"].get("initContainers") or ()
        ],
        "containerStatuses": [_container(pod, each, state, is_ready=is_up) for each in pod["spec"]["containers"]],
    }


def _condition(kind: str, holds: bool) -> dict[str, Any]:
    return {"type": kind, "status": str(holds), "reason": "Testbed", "message": "", "lastTransitionTime": now()}


def _terminated(code: int, reason: str) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": now(), "finishedAt": now()}}


def _container(pod: dict[str, Any], spec: dict[str, Any], state: dict[str, Any], *, is_ready: bool) -> dict[str, Any]:
    return {
        "name": spec["name"],
        "image": spec["image"],
        "imageID": "",
        "containerID": f"testbed://{pod['metadata']['uid']}/{spec['name']}",
        "ready": is_ready,
        "started": is_ready,
        "restartCount": 0,
        "state": state,
    }


class Kubelet:
    """Plays the kubelet of all `NODES`."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api
        self._core = client.CoreV1Api(api)
        self._leases = client.CoordinationV1Api(api)
        self._names = {str(node["metadata"]["name"]) for node in NODES}
        self._addresses = 0

    def run(self) -> None:
        """Until the process is ended."""
        for node in NODES:
            self._unless_gone(self._core.create_node, node)
        threading.Thread(target=self._keep_alive, daemon=True).start()
        while True:
            try:
                for event in watch.Watch().stream(self._core.list_pod_for_all_namespaces):
                    self._take(event["raw_object"])
            except (ApiException, HTTPError, OSError) as error:  # the API server is away: look again
                sys.stderr.write(f"{error}\n")
                time.sleep(0.2)

    def _take(self, pod: dict[str, Any]) -> None:
        if pod["spec"].get("nodeName") not in self._names:
            return
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        if pod["metadata"].get("deletionTimestamp"):
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
            self._unless_gone(self._core.delete_namespaced_pod, name, namespace, body=options)
        elif pod["status"].get("phase") == "Pending" and not pod["status"].get("containerStatuses"):
            self._addresses += 1
            address = f"192.0.2.{self._addresses % 250 + 1}"
            body = {"status": status_of(pod, fate_of(pod), address)}
            self._unless_gone(self._core.patch_namespaced_pod_status, name, namespace, body)

    def _keep_alive(self) -> None:
        """A node whose lease runs out loses its Pods."""
        while True:
            for name in self._names:
                spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now(micro=True)}
                lease = {"metadata": {"name": name}, "spec": spec}
                try:
                    if self._unless_gone(self._leases.patch_namespaced_lease, name, "kube-node-lease", lease) is None:
                        self._unless_gone(self._leases.create_namespaced_lease, "kube-node-lease", lease)
                except (ApiException, HTTPError, OSError) as error:
                    sys.stderr.write(f"{error}\n")
            time.sleep(RENEW_S)

    def _unless_gone(self, call: Any, *arguments: Any, **named: Any) -> Any:
        """What the call answers; None where the object is gone, or there already, or another by now."""
        try:
            return call(*arguments, **named)
        except ApiException as error:
            if error.status not in _GONE:
                raise
            return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", required=True)
    options = parser.parse_args()
    Kubelet(config.new_client_from_config(options.kubeconfig)).run()


if __name__ == "__main__":
    main()
