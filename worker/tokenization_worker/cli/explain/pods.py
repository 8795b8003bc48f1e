"""Summarizes the Pods of a job, and why one does not run. Decides; does no I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from tokenization_worker.api.metadata import API_GROUP
from tokenization_worker.api.types.reasons import StatusReason
from tokenization_worker.api.types.times import read_time
from tokenization_worker.messages.redact import redact

Object = dict[str, Any]

JOB_LABEL = f"{API_GROUP}/job"
_ATTEMPT_LABEL = f"{API_GROUP}/attempt"
_NODE_TYPE_LABEL = "ray.io/node-type"
_PULL = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_BEGINNING = frozenset({"ContainerCreating", "PodInitializing"})
_PENDING = "Pending"
_OUT_OF_MEMORY = "OOMKilled"
"""A phase and a reason of Kubernetes for Pods."""

_LONG_S = 120.0
_SHOWN = ("google.com/tpu", "cpu", "memory", "ephemeral-storage")


_Found = tuple[str, str, StatusReason | Literal[""]]
"""State of a Pod, what blocks it, and the reason for that."""


@dataclass(frozen=True, slots=True)
class PodSummary:
    """`blocked`: what keeps it from running, or ended it; "" where nothing does. `reason`: the same as a reason of a
    status, where there is one. `asks`: of a Pod without a node, what it asks nodes for."""

    name: str
    role: str
    state: str
    restarts: int
    created: datetime | None
    node: str
    blocked: str = ""
    reason: StatusReason | Literal[""] = ""
    asks: str = ""

    @property
    def is_well(self) -> bool:
        return not self.blocked

    @property
    def has_begun(self) -> bool:
        """Whether a container of it may have written a log."""
        return self.state != _PENDING and self.reason is not StatusReason.IMAGE_PULL_FAILED


def role_of(pod: Object) -> str:
    """`plan`, `head`, `worker`, or `submitter`, which shows what the driver prints."""
    labels = (pod.get("metadata") or {}).get("labels") or {}
    kind = labels.get(_NODE_TYPE_LABEL)
    if kind in ("head", "worker"):
        return str(kind)
    return "plan" if labels.get(_ATTEMPT_LABEL) == "0" else "submitter"


def summarize_pod(pod: Object, now: datetime) -> PodSummary:
    """What a Pod does, from its status."""
    metadata, spec, status = (pod.get(name) or {} for name in ("metadata", "spec", "status"))
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    created = read_time(metadata.get("creationTimestamp"))
    state, blocked, reason = _find_state(pod, containers, created, now)
    return PodSummary(
        name=str(metadata.get("name")),
        role=role_of(pod),
        state=state,
        restarts=sum(each.get("restartCount") or 0 for each in containers),
        created=created,
        node=str(spec.get("nodeName") or ""),
        blocked=redact(blocked),
        reason=reason,
        asks=redact(_asks(spec)) if reason is StatusReason.UNSCHEDULABLE else "",
    )


def _asks(spec: Object) -> str:
    """`google.com/tpu 4, cpu 8, memory 16Gi on a node with a=b`; of several containers `cpu 8 + 1`."""
    amounts: dict[str, list[str]] = {}
    for each in spec.get("containers") or ():
        resources = each.get("resources") or {}
        for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            amounts.setdefault(name, []).append(str(amount))
    shown = sorted((name for name in amounts if name in _SHOWN), key=_SHOWN.index)
    words = ", ".join(f"{name} {' + '.join(amounts[name])}" for name in shown)
    labels = ", ".join(f"{name}={value}" for name, value in sorted((spec.get("nodeSelector") or {}).items()))
    return f"{words or 'no resources'}{f' on a node with {labels}' if labels else ''}"


def _find_state(pod: Object, containers: list[Object], created: datetime | None, now: datetime) -> _Found:
    """State, what blocks it, and the reason for that."""
    status = pod.get("status") or {}
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        return "Terminating", "", ""
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason") not in _BEGINNING:
            return _of_waiting(container, waiting)
    for container in containers:
        ended = (container.get("state") or {}).get("terminated")
        if ended and (ended.get("exitCode") or ended.get("reason") == _OUT_OF_MEMORY):
            return str(ended.get("reason") or "Error"), _words_of_end(ended), _reason_of_end(ended)
    if status.get("phase") == "Failed":
        words = ": ".join(filter(None, (status.get("reason"), status.get("message"))))
        return str(status.get("reason") or "Failed"), words or "it failed without a message", ""
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            words = f"finds no node: {each.get('message') or each.get('reason') or ''}"
            return _PENDING, words, StatusReason.UNSCHEDULABLE
    for container in containers:
        before = (container.get("lastState") or {}).get("terminated")
        if before and container.get("restartCount"):
            words = f"restarted; before: {_words_of_end(before)}"
            return str(status.get("phase") or _PENDING), words, _reason_of_end(before)
    return _of_slow(status, created, now)


def _of_waiting(container: Object, waiting: Object) -> _Found:
    state = str(waiting.get("reason") or "Waiting")
    words = str(waiting.get("message") or "")
    before = (container.get("lastState") or {}).get("terminated")
    if state in _PULL:
        return state, f"cannot pull {container.get('image')}: {words or state}", StatusReason.IMAGE_PULL_FAILED
    if before:
        return state, f"keeps ending: {_words_of_end(before)}", _reason_of_end(before)
    return state, words or state, StatusReason.POD_INVALID


def _words_of_end(ended: Object) -> str:
    code, reason = ended.get("exitCode"), ended.get("reason") or ""
    if reason == _OUT_OF_MEMORY:
        return "killed for its memory (OOMKilled)"
    text = str(ended.get("message") or "").strip()
    try:
        said = json.loads(text)
        text = f"{said['reason']}: {said['message']}"
    except (ValueError, KeyError, TypeError):  # the end of its log, or nothing
        text = text.splitlines()[-1] if text else ""
    return f"ended with exit code {code}" + (f": {text}" if text else "")


def _reason_of_end(ended: Object) -> StatusReason | Literal[""]:
    return StatusReason.WORKER_MEMORY if ended.get("reason") == _OUT_OF_MEMORY else ""


def _of_slow(status: Object, created: datetime | None, now: datetime) -> _Found:
    """A Pod of which nothing bad is known but that it may take long."""
    phase = str(status.get("phase") or _PENDING)
    is_old = created is not None and (now - created).total_seconds() > _LONG_S
    ready: Object = next((each for each in status.get("conditions") or () if each.get("type") == "Ready"), {})
    if phase == "Succeeded":
        return "Completed", "", ""
    if phase == "Running" and ready.get("status") == "False":
        return "Running", f"runs and is not ready: {ready.get('message') or ''}".rstrip(": ") if is_old else "", ""
    if phase == _PENDING and is_old:
        return _PENDING, "its containers are not created yet: see the events of the Pod", ""
    return phase, "", ""
