"""What keeps a Pod from running, or ended it, in the user's words. Decides; does no I/O.

One table for plan, head, worker and submitter Pods: the kubelet, the scheduler and admission say the same of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from kubernetes.utils.quantity import parse_quantity
from pydantic import ValidationError

from tokenization_operator.observation import Object, node_type
from tokenization_worker.api.checkpoint import FailureReport

_PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_CONFIGURATION = frozenset({"CreateContainerConfigError", "CreateContainerError"})

TroubleReason = Literal[
    "ClusterRejected", "ImagePullFailed", "NamespaceNotPrepared", "PodInvalid", "Unschedulable", "WorkerMemory"
]
TROUBLES: frozenset[str] = frozenset(get_args(TroubleReason))


@dataclass(frozen=True, slots=True)
class Trouble:
    """`reason` is a word of the job's status."""

    reason: TroubleReason
    message: str


def find_trouble(pods: Iterable[Object], warnings: Iterable[str]) -> Trouble | None:
    """The first thing that keeps a Pod of these from running; `warnings`: events of Pods that could not be made."""
    for pod in pods:
        found = _of_pod(pod)
        if found is not None:
            return found
    for text in warnings:
        return _of_warning(text)
    return None


def _of_pod(pod: Object) -> Trouble | None:
    name = pod["metadata"]["name"]
    status = pod.get("status") or {}
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, words = waiting.get("reason", ""), waiting.get("message", "")
        if reason in _PULL:
            return Trouble(
                "ImagePullFailed",
                f"Pod {name} cannot pull {container['image']}: {words or reason}. Correct spec.image, or give the "
                "Pods imagePullSecrets; the next attempt uses it",
            )
        if reason in _CONFIGURATION:
            return Trouble("PodInvalid", f"Pod {name} cannot start: {words or reason}")
    if out_of_memory([pod]) is not None:
        return Trouble("WorkerMemory", memory_words(pod))
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return Trouble("Unschedulable", f"Pod {name} finds no node: {each.get('message', '')}")
    return None


def _of_warning(text: str) -> Trouble:
    if "serviceaccount" in text and "not found" in text:
        return Trouble("NamespaceNotPrepared", text)
    if "exceeded quota" in text:
        return Trouble("Unschedulable", text)
    if "admission webhook" in text or "violates PodSecurity" in text:
        return Trouble("ClusterRejected", text)
    return Trouble("PodInvalid", text)


def last_words(pods: Iterable[Object]) -> FailureReport | None:
    """What a container of ours left behind when it ended, for want of another way to report."""
    for pod in pods:
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            text = ((container.get("state") or {}).get("terminated") or {}).get("message") or ""
            try:
                return FailureReport.model_validate_json(text)
            except ValidationError:  # the log of a Pod that could not say anything
                continue
    return None


def out_of_memory(pods: Iterable[Object]) -> Object | None:
    """The first Pod of which a container was killed for its memory."""
    for pod in pods:
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            for state in (container.get("state") or {}, container.get("lastState") or {}):
                if (state.get("terminated") or {}).get("reason") == "OOMKilled":
                    return pod
    return None


def memory_words(pod: Object) -> str:
    """What to do about a Pod that was killed for its memory."""
    container = pod["spec"]["containers"][0]
    limit = (container.get("resources", {}).get("limits") or {}).get("memory")
    name = pod["metadata"]["name"]
    if limit is None:
        return f"Pod {name} was killed for its memory and has no limit: its node has too little"
    return (
        f"Pod {name} was killed for its memory: it may take {limit}. Give it more "
        f"({_OWNERS.get(node_type(pod), 'the plan')}), for example {more_memory(limit)}"
    )


_OWNERS = {"worker": "workers.resources.limits.memory", "head": "head.resources.limits.memory"}


def more_memory(limit: str) -> str:
    """Half as much again, in whole Mi."""
    return f"{int(parse_quantity(limit)) * 3 // 2 // 2**20}Mi"
