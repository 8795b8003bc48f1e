"""Diagnoses why a Pod does not run or was killed, in the user's words. Pure.

One table for plan, head, worker and submitter Pods: kubelet, scheduler and admission report the same for all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from tokenization_operator.objects import names
from tokenization_operator.objects.admission import is_of_admission
from tokenization_operator.objects.quantities import read_quantity
from tokenization_operator.objects.reading import Object, node_type
from tokenization_operator.observe.observation import PodEvent
from tokenization_worker.api.checkpoint import FailureReport
from tokenization_worker.api.types.reasons import StatusReason

_PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_NEVER_PULLED = frozenset({"InvalidImageName"})
_CONFIGURATION = frozenset({"CreateContainerConfigError"})
_CREATION = frozenset({"CreateContainerError", "RunContainerError"})
_REFUSED_BY_NODE = frozenset({"UnexpectedAdmissionError"})

POD_PATIENCE_S = 300.0
"""How long a Pod may be unable to start. What it lacks may still arrive: controllers that copy Secrets run about once a
minute, kubelets retry as often, and Kubernetes retries a refused creation five times within 310 s."""

NODE_PATIENCE_S = 600.0
"""How long a Pod may have no node that could hold it. A cluster autoscaler responds within two minutes."""

_SILENT_S = 3000.0
"""Kubernetes keeps events for an hour. For an older Pod, a missing event does not prove that no autoscaler responded.
"""

_NO_NODE = re.compile(r"preemption: 0/(\d+) nodes are available: \1 Preemption is not helpful")
_TOO_SMALL = ("Insufficient ", "affinity/selector")
"""Reasons that apply to a working node. A broken node has a taint, which the scheduler reports like any other taint."""

_MAY_PASS = ("max ", "backoff", "not ready", "quota")
"""Why an autoscaler adds no node now but may add one later."""

_SCALES_UP = frozenset({"TriggeredScaleUp", "Nominated"})
_SCALES_NOT = "NotTriggerScaleUp"

DIAGNOSES: frozenset[str] = frozenset(
    {
        StatusReason.CLUSTER_REJECTED,
        StatusReason.IMAGE_PULL_FAILED,
        StatusReason.NAMESPACE_NOT_PREPARED,
        StatusReason.POD_INVALID,
        StatusReason.UNSCHEDULABLE,
        StatusReason.WORKER_MEMORY,
    }
)
"""The reasons of diagnoses."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a Pod does not run. `reason` becomes the reason of the job's status.

    `limit_s`: how long it may last; None: as long as the plan or the start of an attempt may take. `is_final`: a retry
    would end the same way. `pod`: the Pod without a node.
    """

    reason: StatusReason
    message: str
    limit_s: float | None = None
    is_final: bool = False
    pod: str = ""


def diagnose(pods: Iterable[Object], warnings: Iterable[str]) -> Diagnosis | None:
    """The most severe diagnosis of these Pods: final ones first, then those with a time limit.

    `warnings`: event messages about Pods that could not be created, newest first; pass them only while some Pods are
    missing. A final warning no longer holds once a newer warning follows it.
    """
    found = [diagnosis for pod in pods if (diagnosis := _of_pod(pod)) is not None]
    warned = [_of_warning(text) for text in warnings]
    found += [each for number, each in enumerate(warned) if not (number and each.is_final)]
    return min(found, key=lambda each: (not each.is_final, each.limit_s is None), default=None)


def _of_pod(pod: Object) -> Diagnosis | None:
    name = pod["metadata"]["name"]
    status = pod.get("status") or {}
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, words = waiting.get("reason", ""), waiting.get("message", "")
        if reason in _PULL:
            limit_s = POD_PATIENCE_S if reason in _NEVER_PULLED else None
            return Diagnosis(
                StatusReason.IMAGE_PULL_FAILED,
                f"Pod {name} cannot pull {container['image']}: {words or reason}. Correct spec.image, or give the "
                f"Pods imagePullSecrets: {_owner(pod)} starts again at once when the job is changed",
                limit_s,
                is_final=limit_s is not None,
            )
        if reason in _CONFIGURATION | _CREATION:
            is_final = reason in _CONFIGURATION
            return Diagnosis(
                StatusReason.POD_INVALID, f"Pod {name} cannot start: {words or reason}", POD_PATIENCE_S, is_final
            )
    if status.get("reason") in _REFUSED_BY_NODE:
        return Diagnosis(
            StatusReason.POD_INVALID, f"Pod {name} cannot start: {status.get('message', '')}", POD_PATIENCE_S
        )
    if find_oom_killed([pod]) is not None:
        return Diagnosis(StatusReason.WORKER_MEMORY, oom_advice(pod))
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return _of_scheduler(name, each)
    return None


def _owner(pod: Object) -> str:
    return "the plan" if (pod["metadata"].get("labels") or {}).get(names.ATTEMPT_LABEL) == "0" else "the attempt"


def _of_scheduler(name: str, condition: Object) -> Diagnosis:
    """The scheduler reports for each node whether it could hold the Pod if all other Pods left it."""
    words = condition.get("message", "")
    can_no_node = _NO_NODE.search(words) is not None and any(each in words for each in _TOO_SMALL)
    said = f"Pod {name} finds no node: {words}"
    return Diagnosis(StatusReason.UNSCHEDULABLE, said, NODE_PATIENCE_S if can_no_node else None, pod=name)


def last_autoscaler_event(events: Iterable[PodEvent]) -> PodEvent | None:
    """The last event of a cluster autoscaler among a Pod's events (oldest first); None if there is none."""
    said = [each for each in events if each.reason in (*_SCALES_UP, _SCALES_NOT)]
    return said[-1] if said else None


def may_nodes_come(events: Iterable[PodEvent], age_s: float) -> bool:
    """Whether a cluster autoscaler may still add a node for a Pod that fits on none. `events`: of that Pod, oldest
    first; `age_s`: of the Pod.

    No autoscaler event means that the cluster has no autoscaler or that it ignores this Pod, but only while Kubernetes
    would still keep the event.
    """
    last = last_autoscaler_event(events)
    if last is None:
        return age_s > _SILENT_S
    return last.reason != _SCALES_NOT or any(word in last.message for word in _MAY_PASS)


def _of_warning(text: str) -> Diagnosis:
    if "serviceaccount" in text and "not found" in text:
        return Diagnosis(StatusReason.NAMESPACE_NOT_PREPARED, text)
    if "exceeded quota" in text:
        return Diagnosis(StatusReason.UNSCHEDULABLE, text)
    if "failed calling webhook" in text:  # the webhook does not answer
        return Diagnosis(StatusReason.CLUSTER_REJECTED, text)
    if "violates PodSecurity" in text:
        return Diagnosis(StatusReason.CLUSTER_REJECTED, text, POD_PATIENCE_S, is_final=True)
    if is_of_admission(text):
        return Diagnosis(StatusReason.CLUSTER_REJECTED, text, POD_PATIENCE_S)
    if " is invalid: " in text or (" is forbidden: " in text and "being terminated" not in text):
        return Diagnosis(StatusReason.POD_INVALID, text, POD_PATIENCE_S, is_final=True)
    return Diagnosis(StatusReason.POD_INVALID, text)


def read_termination_message(pods: Iterable[Object]) -> FailureReport | None:
    """The failure report that one of our containers wrote as its termination message."""
    for pod in pods:
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            text = ((container.get("state") or {}).get("terminated") or {}).get("message") or ""
            try:
                return FailureReport.model_validate_json(text)
            except ValidationError:  # not a report: the tail of the container's log
                continue
    return None


def find_oom_killed(pods: Iterable[Object]) -> Object | None:
    """The first Pod with a container that was killed for its memory."""
    for pod in pods:
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            for state in (container.get("state") or {}, container.get("lastState") or {}):
                if (state.get("terminated") or {}).get("reason") == "OOMKilled":
                    return pod
    return None


def oom_advice(pod: Object) -> str:
    """What the user should do about a Pod that was killed for its memory."""
    container = pod["spec"]["containers"][0]
    limit = (container.get("resources", {}).get("limits") or {}).get("memory")
    name = pod["metadata"]["name"]
    if limit is None:
        return f"Pod {name} was killed for its memory and has no limit: its node has too little memory"
    return (
        f"Pod {name} was killed for its memory: its limit is {limit}. Raise the limit "
        f"({_OWNERS.get(node_type(pod), 'the plan')}), for example {more_memory(limit)}"
    )


_OWNERS = {"worker": "workers.resources.limits.memory", "head": "head.resources.limits.memory"}


def more_memory(limit: str) -> str:
    """Half as much again, in whole Mi."""
    return f"{int(read_quantity(limit)) * 3 // 2 // 2**20}Mi"
