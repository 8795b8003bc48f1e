"""Nodes without a machine: keeps them alive, and says of their Pods what a kubelet would say.

A Pod's image says what becomes of it: its tag is a list of ROLE-FATE, such as `worker:plan-run.driver-hold.worker-oom`.
Roles: `plan`, `driver` (KubeRay's submitter), `head`, `worker`. Fates:

    hold       it becomes Running and Ready, and stays so (what happens without a word)
    exit0 ...  its containers end with that code, and where their Pod restarts them, again and again
    oom        its containers are killed for their memory, as above
    missing    its image cannot be pulled
    secretless a Secret of its environment is not there
    run        its command runs here as a process, and its end is the Pod's

A deleted Pod goes away at once. Runs until it is ended.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from testbed.dashboard import State, serve_dashboards
from testbed.local_pods import LocalPods, submission_of, words_of

ADDRESS = "192.0.2.254"
"""Of TEST-NET-1, as those of all Pods: nothing may come of it where somebody tries to reach one."""

RENEW_S = 10.0
_ATTEMPT = "tokenization.dev/attempt"
_POLL_S = 0.2
_TPU = "google.com/tpu"
_GONE = frozenset({404, 409})


def now(*, micro: bool = False) -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S" + (".%fZ" if micro else "Z"))


def cpu_node(name: str) -> dict[str, Any]:
    """A node of ordinary CPUs, large enough for hundreds of Pods."""
    size = {"cpu": "16384", "memory": "64Ti", "ephemeral-storage": "100Ti", "pods": "10000"}
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


def tpu_node(name: str, accelerator: str, topology: str, chips: int, capacity: str = "") -> dict[str, Any]:
    """A TPU host as GKE labels and taints it; `capacity`: `spot`, `flex-start`, or the name of a reservation."""
    node = cpu_node(name)
    node["metadata"]["labels"] |= {
        "cloud.google.com/gke-tpu-accelerator": accelerator,
        "cloud.google.com/gke-tpu-topology": topology,
    }
    node["spec"] = {"taints": [{"key": _TPU, "value": "present", "effect": "NoSchedule"}]}
    if capacity in ("spot", "flex-start"):
        kind = f"cloud.google.com/gke-{capacity}"
        node["metadata"]["labels"][kind] = "true"
        node["spec"]["taints"].append({"key": kind, "value": "true", "effect": "NoSchedule"})
    elif capacity:
        node["metadata"]["labels"]["cloud.google.com/reservation-name"] = capacity
    for size in (node["status"]["capacity"], node["status"]["allocatable"]):
        size |= {_TPU: str(chips), "cpu": "180", "memory": "720Gi", "pods": "110"}
    return node


def role_of(pod: dict[str, Any]) -> str:
    """What a Pod is for: `plan`, `driver`, `head` or `worker`."""
    labels = pod["metadata"].get("labels") or {}
    kind = labels.get("ray.io/node-type")
    return str(kind) if kind in ("head", "worker") else "plan" if labels.get(_ATTEMPT) == "0" else "driver"


def fate_of(pod: dict[str, Any]) -> str:
    """What is to become of a Pod."""
    role = role_of(pod)
    tag = str(pod["spec"]["containers"][0]["image"]).rpartition(":")[2]
    for part in tag.split("."):
        name, _, fate = part.partition("-")
        if name == role:
            return fate
    return "hold"


def status_of(pod: dict[str, Any], fate: str, last_words: str = "") -> dict[str, Any]:
    """What a kubelet would write of a Pod with that fate; `last_words`: its termination log."""
    state: dict[str, Any]
    last: dict[str, Any] = {}
    if fate == "missing":
        words = f'Back-off pulling image "{pod["spec"]["containers"][0]["image"]}": not found'
        state, phase = {"waiting": {"reason": "ImagePullBackOff", "message": words}}, "Pending"
    elif fate == "secretless":
        words = 'secret "hugging-face" not found'
        state, phase = {"waiting": {"reason": "CreateContainerConfigError", "message": words}}, "Pending"
    elif fate == "oom":
        state, phase = _terminated(137, "OOMKilled"), "Failed"
    elif ended := re.fullmatch(r"exit(\d+)", fate):
        code = int(ended[1])
        state = _terminated(code, "Error" if code else "Completed")
        state["terminated"] |= {"message": last_words} if last_words else {}
        phase = "Failed" if code else "Succeeded"
    else:
        state, phase = {"running": {"startedAt": now()}}, "Running"
    if "terminated" in state and pod["spec"].get("restartPolicy", "Always") == "Always":
        words = f"back-off 10s restarting failed container={pod['spec']['containers'][0]['name']}"
        state, last, phase = {"waiting": {"reason": "CrashLoopBackOff", "message": words}}, state, "Running"
    is_up = "running" in state
    ready = ("ContainersReady", "Ready")
    return {
        "phase": phase,
        "hostIP": ADDRESS,
        "podIP": ADDRESS,
        "podIPs": [{"ip": ADDRESS}],
        "startTime": now(),
        "conditions": [
            *(_condition(kind, True) for kind in ("PodScheduled", "Initialized")),
            *(_condition(kind, is_up) for kind in ready),
        ],
        "initContainerStatuses": [
            _container(pod, each, _terminated(0, "Completed"), {}, is_ready=True)
            for each in pod["spec"].get("initContainers") or ()
        ],
        "containerStatuses": [_container(pod, each, state, last, is_ready=is_up) for each in pod["spec"]["containers"]],
    }


def _condition(kind: str, holds: bool) -> dict[str, Any]:
    return {"type": kind, "status": str(holds), "reason": "Testbed", "message": "", "lastTransitionTime": now()}


def _terminated(code: int, reason: str) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": now(), "finishedAt": now()}}


def _container(
    pod: dict[str, Any], spec: dict[str, Any], state: dict[str, Any], last: dict[str, Any], *, is_ready: bool
) -> dict[str, Any]:
    return {
        "name": spec["name"],
        "image": spec["image"],
        "imageID": "",
        "containerID": f"testbed://{pod['metadata']['uid']}/{spec['name']}",
        "ready": is_ready,
        "started": is_ready,
        "restartCount": 1 if last else 0,
        "state": state,
        "lastState": last,
    }


NODES = (
    cpu_node("cpu-0"),
    *(tpu_node(f"v6e-2x2-{number}", "tpu-v6e-slice", "2x2", 4) for number in range(2)),
    *(tpu_node(f"v5e-2x4-{number}", "tpu-v5-lite-podslice", "2x4", 8) for number in range(2)),
)


class Kubelet:
    """Plays the kubelet of all nodes that there are: `NODES`, and those that somebody adds."""

    def __init__(self, api: client.ApiClient, local: LocalPods) -> None:
        self._core = client.CoreV1Api(api)
        self._local = local
        self._running: dict[str, dict[str, Any]] = {}  # Pods that are processes here, by UID
        self._submitted: dict[str, tuple[str, str]] = {}  # a Ray job's id: UID and fate of its submitter
        self._leases = client.CoordinationV1Api(api)

    def run(self) -> None:
        """Until the process is ended."""
        for node in NODES:
            self._unless_gone(self._core.create_node, node)
        threading.Thread(target=self._keep_alive, daemon=True).start()
        threading.Thread(target=self._follow_processes, daemon=True).start()
        while True:
            try:
                for event in watch.Watch().stream(self._core.list_pod_for_all_namespaces):
                    self._take(event["raw_object"])
            except (ApiException, HTTPError, OSError) as error:  # the API server is away: look again
                sys.stderr.write(f"{error}\n")
                time.sleep(0.2)

    def _take(self, pod: dict[str, Any]) -> None:
        if not pod["spec"].get("nodeName"):
            return
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        if pod["metadata"].get("deletionTimestamp"):
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
            self._local.kill(pod["metadata"]["uid"])
            self._running.pop(pod["metadata"]["uid"], None)
            self._unless_gone(self._core.delete_namespaced_pod, name, namespace, body=options)
        elif pod["status"].get("phase") == "Pending" and not pod["status"].get("containerStatuses"):
            fate, uid = fate_of(pod), pod["metadata"]["uid"]
            submission = submission_of(pod) if role_of(pod) == "driver" else None
            first, _ = self._submitted.get(submission or "", (uid, fate))
            if first != uid:  # KubeRay's submitter finds the job there, and ends as that has ended
                code = self._local.exit_code(first)
                self._say(pod, fate if code is None else f"exit{code}")
                return
            if submission is not None:
                self._submitted[submission] = uid, fate
            if fate == "run":  # first, as a Pod of which nothing is said yet is looked at again where a request fails
                self._start(pod)
            self._say(pod, fate)
            if fate == "run":
                self._running[uid] = pod

    def _say(self, pod: dict[str, Any], fate: str) -> None:
        body = {"status": status_of(pod, fate, self._local.last_words(pod))}
        metadata = pod["metadata"]
        self._unless_gone(self._core.patch_namespaced_pod_status, metadata["name"], metadata["namespace"], body)

    def _start(self, pod: dict[str, Any]) -> None:
        """Run the Pod's command here; the driver's is the entrypoint, with the environment of the cluster's head."""
        if role_of(pod) == "plan":
            self._local.start(pod, words_of(pod), pod)
        else:
            labels = pod["metadata"]["labels"]
            ours = ",".join(f"{name}={value}" for name, value in labels.items() if name.startswith("tokenization.dev/"))
            heads = self._core.list_namespaced_pod(
                pod["metadata"]["namespace"], label_selector=f"{ours},ray.io/node-type=head"
            )
            head = self._core.api_client.sanitize_for_serialization(heads.items[0])
            self._local.start(pod, ["drive"], head)

    def _follow_processes(self) -> None:
        """The end of a process is its Pod's."""
        while True:
            for uid, pod in list(self._running.items()):
                code = self._local.exit_code(uid)
                if code is not None:
                    self._running.pop(uid, None)
                    try:
                        self._say(pod, f"exit{code if code >= 0 else 128 - code}")
                    except (ApiException, HTTPError, OSError) as error:
                        sys.stderr.write(f"{error}\n")
                        self._running[uid] = pod
            time.sleep(_POLL_S)

    def state_of(self, submission: str) -> State:
        """What Ray's dashboard says of a job."""
        uid, fate = self._submitted.get(submission, ("", ""))
        code = self._local.exit_code(uid)
        if ended := re.fullmatch(r"exit(\d+)", fate):
            code = int(ended[1])
        elif fate == "run" and code is None:
            return "RUNNING", ""
        if code is not None:
            return ("FAILED", f"exit code {code}") if code else ("SUCCEEDED", "")
        return ("RUNNING", "") if fate else ("PENDING", "")

    def _keep_alive(self) -> None:
        """A node whose lease runs out loses its Pods."""
        while True:
            try:
                for node in self._core.list_node().items:
                    self._renew(node.metadata.name)
            except (ApiException, HTTPError, OSError) as error:
                sys.stderr.write(f"{error}\n")
            time.sleep(RENEW_S)

    def _renew(self, name: str) -> None:
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now(micro=True)}
        lease = {"metadata": {"name": name}, "spec": spec}
        if self._unless_gone(self._leases.patch_namespaced_lease, name, "kube-node-lease", lease) is None:
            self._unless_gone(self._leases.create_namespaced_lease, "kube-node-lease", lease)

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
    parser.add_argument("--dashboard-port", type=int, required=True)
    options = parser.parse_args()
    api = config.new_client_from_config(options.kubeconfig)
    local = LocalPods(api, Path(options.kubeconfig).parent / "pods")
    kubelet = Kubelet(api, local)
    serve_dashboards(options.dashboard_port, kubelet.state_of)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    try:
        kubelet.run()
    finally:
        local.close()


if __name__ == "__main__":
    main()
