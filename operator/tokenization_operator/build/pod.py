"""The common parts of all Pods of a job, as plain Kubernetes objects. Pure.

Every Pod meets the restricted Pod Security standard. The worker writes only to /tmp, whose size is limited, so that no
Pod fills the disk of a shared node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenization_operator.objects.quantities import read_quantity
from tokenization_worker.api.job import JobSpec
from tokenization_worker.api.pod.extras import Pods, TemporaryVolume
from tokenization_worker.api.types.model import Block

TEMPORARY_SIZE = "10Gi"
"""The default size limit of /tmp: the most that GKE Autopilot gives a Pod. Ray's logs fill most of /tmp."""
_TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_S = 3600
_LOCKED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@dataclass(frozen=True, slots=True)
class Image:
    """The worker image of an attempt, how to pull it, and who runs in it. `user_id`: None if the cluster chooses it."""

    name: str
    pull_policy: str
    pull_secrets: tuple[str, ...]
    service_account: str
    user_id: int | None


def container(
    name: str,
    image: Image,
    *,
    command: Sequence[str] = (),
    environment: Mapping[str, str],
    spec: JobSpec,
    requests: Mapping[str, Any],
    limits: Mapping[str, Any],
    has_token: bool = False,
    shared_memory: bool = False,
) -> dict[str, Any]:
    """A container of the worker image; `environment` overrides the user's variables."""
    own = [_plain(each) for each in spec.env]
    mounts = [_plain(each) for each in (spec.pods or Pods()).volume_mounts or ()]  # numbered as in the job
    mounts.append({"name": "tmp", "mountPath": "/tmp"})
    if has_token:
        mounts.append({"name": "token", "mountPath": _TOKEN_FOLDER})
    if shared_memory:
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    made: dict[str, Any] = {
        "name": name,
        "image": image.name,
        "imagePullPolicy": image.pull_policy,
        "securityContext": _LOCKED,
        "env": [
            *(each for each in own if each["name"] not in environment),
            *({"name": name, "value": value} for name, value in environment.items()),
        ],
        "resources": {"requests": dict(requests), "limits": dict(limits)},
        "volumeMounts": mounts,
    }
    if command:
        made["command"] = list(command)
    if spec.env_from:
        made["envFrom"] = [_plain(each) for each in spec.env_from]
    return made


def pod_spec(
    container: dict[str, Any],
    image: Image,
    *,
    shared_memory: str | None = None,
    node_selector: Mapping[str, str] | None = None,
    tolerations: Sequence[Mapping[str, Any]] = (),
    priority_class_name: str | None = None,
    has_token: bool = False,
    extras: Pods | None = None,
) -> dict[str, Any]:
    """A Pod with one container. `shared_memory`: size of /dev/shm; `has_token`: mounts a token for the API server;
    `extras`: the user's volumes."""
    extras = extras or Pods()
    size = (extras.temporary_volume or TemporaryVolume()).size_limit
    volumes = [_plain(each) for each in extras.volumes or ()]  # numbered as in the job
    volumes.append({"name": "tmp", "emptyDir": {"sizeLimit": TEMPORARY_SIZE if size is None else size}})
    if has_token:
        volumes.append({"name": "token", "projected": {"sources": _TOKEN_SOURCES}})
    if shared_memory is not None:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory}})
    made: dict[str, Any] = {
        "serviceAccountName": image.service_account,
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            **({} if image.user_id is None else dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), image.user_id)),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }
    if image.pull_secrets:
        made["imagePullSecrets"] = [{"name": name} for name in image.pull_secrets]
    if node_selector:
        made["nodeSelector"] = dict(node_selector)
    if tolerations:
        made["tolerations"] = [dict(each) for each in tolerations]
    if priority_class_name:
        made["priorityClassName"] = priority_class_name
    return made


def _plain(block: Block) -> dict[str, Any]:
    """The block as it appears in a Pod."""
    return block.model_dump(mode="json", by_alias=True, exclude_none=True)


_TOKEN_SOURCES = [
    {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN_S}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
]


def complete_resources(
    requests: Mapping[str, Any], limits: Mapping[str, Any], *, cpu: str, memory: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Requests and limits with defaults: the memory limit equals the request, and no default exceeds a limit."""
    most = {"memory": requests.get("memory", memory)} | dict(limits)
    least = {"cpu": _lower(cpu, most.get("cpu")), "memory": _lower(memory, most["memory"])}
    return least | dict(requests), most


def _lower(amount: str, limit: Any) -> Any:
    return amount if limit is None or read_quantity(amount) <= read_quantity(str(limit)) else limit
