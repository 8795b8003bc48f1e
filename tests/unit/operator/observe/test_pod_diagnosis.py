"""Why a Pod does not run, by what kubelet, scheduler, admission and autoscaler say of it."""

from __future__ import annotations

from typing import Any

import pytest

from tokenization_operator.objects import names
from tokenization_operator.observe.observation import PodEvent
from tokenization_operator.observe.pod_diagnosis import (
    NODE_PATIENCE_S,
    POD_PATIENCE_S,
    diagnose,
    find_oom_killed,
    last_autoscaler_event,
    may_nodes_come,
    more_memory,
    oom_advice,
    read_termination_message,
)
from tokenization_worker.api.checkpoint import FailureReport

Pod = dict[str, Any]


def pod(name: str = "p", **status: Any) -> Pod:
    container = {"name": "worker", "image": "registry/worker:1"}
    return {"metadata": {"name": name, "labels": {}}, "spec": {"containers": [container]}, "status": status}


def waiting(reason: str, words: str = "", *, init: bool = False) -> Pod:
    state = {"image": "registry/worker:1", "state": {"waiting": {"reason": reason, "message": words}}}
    return pod(**{"initContainerStatuses" if init else "containerStatuses": [state]})


def unscheduled(words: str) -> Pod:
    return pod(conditions=[{"type": "PodScheduled", "status": "False", "message": words}])


def oom_killed(*, now: bool = True, limit: str | None = "1Gi") -> Pod:
    found = pod(containerStatuses=[{"state" if now else "lastState": {"terminated": {"reason": "OOMKilled"}}}])
    if limit is not None:
        found["spec"]["containers"][0]["resources"] = {"limits": {"memory": limit}}
    return found


NO_ROOM = (
    "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 Preemption is not helpful"
)
BUSY = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims"
TAINTED = (
    "0/3 nodes are available: 3 node(s) had untolerated taint. preemption: 0/3 nodes are available: "
    "3 Preemption is not helpful"
)

PODS: dict[str, tuple[Pod, tuple[str, float | None, bool] | None]] = {
    "runs": (pod(containerStatuses=[{"state": {"running": {}}}]), None),
    "no status yet": ({"metadata": {"name": "p"}, "spec": {"containers": [{}]}}, None),
    "creates its container": (waiting("ContainerCreating"), None),
    "cannot pull": (waiting("ImagePullBackOff"), ("ImagePullFailed", None, False)),
    "cannot pull, init": (waiting("ErrImagePull", init=True), ("ImagePullFailed", None, False)),
    "no image name": (waiting("InvalidImageName"), ("ImagePullFailed", POD_PATIENCE_S, True)),
    "no Secret": (waiting("CreateContainerConfigError"), ("PodInvalid", POD_PATIENCE_S, True)),
    "no command": (waiting("RunContainerError"), ("PodInvalid", POD_PATIENCE_S, False)),
    "refused by its node": (pod(reason="UnexpectedAdmissionError"), ("PodInvalid", POD_PATIENCE_S, False)),
    "killed for its memory": (oom_killed(), ("WorkerMemory", None, False)),
    "was killed for its memory": (oom_killed(now=False), ("WorkerMemory", None, False)),
    "fits on no node": (unscheduled(NO_ROOM), ("Unschedulable", NODE_PATIENCE_S, False)),
    "waits for others": (unscheduled(BUSY), ("Unschedulable", None, False)),
    "nodes are broken": (unscheduled(TAINTED), ("Unschedulable", None, False)),
}


@pytest.mark.parametrize(("found", "expected"), PODS.values(), ids=PODS)
def test_a_pod_that_does_not_run_gets_its_reason_and_patience(
    found: Pod, expected: tuple[str, float | None, bool] | None
) -> None:
    diagnosis = diagnose([found], [])
    seen = diagnosis and (diagnosis.reason.value, diagnosis.limit_s, diagnosis.is_final)
    assert seen == expected


WARNINGS: dict[str, tuple[str, tuple[str, float | None, bool]]] = {
    "no account": ('error looking up: serviceaccount "worker" not found', ("NamespaceNotPrepared", None, False)),
    "quota": ('pods "p" is forbidden: exceeded quota: q', ("Unschedulable", None, False)),
    "webhook is down": ("failed calling webhook: admission webhook x", ("ClusterRejected", None, False)),
    "webhook refuses": ('admission webhook "x" denied the request', ("ClusterRejected", POD_PATIENCE_S, False)),
    "policy refuses": (
        "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'owners' with binding 'team' denied request: no owner",
        ("ClusterRejected", POD_PATIENCE_S, False),
    ),
    "Pod Security": ('pods "p" is forbidden: violates PodSecurity "x"', ("ClusterRejected", POD_PATIENCE_S, True)),
    "invalid": ('Pod "p" is invalid: spec.x: Required', ("PodInvalid", POD_PATIENCE_S, True)),
    "namespace ends": ('pods "p" is forbidden: because it is being terminated', ("PodInvalid", None, False)),
    "anything else": ("the server is on fire", ("PodInvalid", None, False)),
}


@pytest.mark.parametrize(("text", "expected"), WARNINGS.values(), ids=WARNINGS)
def test_a_pod_that_could_not_be_created_gets_its_reason(text: str, expected: tuple[str, float | None, bool]) -> None:
    diagnosis = diagnose([], [text])
    assert diagnosis is not None
    assert (diagnosis.reason.value, diagnosis.limit_s, diagnosis.is_final, diagnosis.message) == (*expected, text)


def test_the_most_severe_diagnosis_counts() -> None:
    final, limited, patient = waiting("InvalidImageName"), unscheduled(NO_ROOM), waiting("ErrImagePull")
    assert diagnose([patient, limited, final], []) == diagnose([final], [])
    assert diagnose([patient, limited], []) == diagnose([limited], [])
    assert diagnose([], []) is None


def test_a_final_warning_no_longer_holds_once_a_newer_one_follows() -> None:
    final, newer = WARNINGS["invalid"][0], WARNINGS["anything else"][0]
    assert diagnose([], [final, newer]) == diagnose([], [final])
    assert diagnose([], [newer, final]) == diagnose([], [newer])


def test_who_starts_again_is_named_by_the_attempt() -> None:
    plan, worker = waiting("ErrImagePull"), waiting("ErrImagePull")
    plan["metadata"]["labels"] = {names.ATTEMPT_LABEL: "0"}
    for found, words in ((plan, "the plan starts again"), (worker, "the attempt starts again")):
        diagnosis = diagnose([found], [])
        assert diagnosis is not None
        assert "registry/worker:1" in diagnosis.message
        assert words in diagnosis.message


def event(reason: str, message: str = "") -> PodEvent:
    return PodEvent(reason=reason, message=message)


SCALING: dict[str, tuple[list[PodEvent], float, bool]] = {
    "a node was asked for": ([event("TriggeredScaleUp")], 60, True),
    "a node was chosen": ([event("Nominated")], 60, True),
    "none would help": ([event("NotTriggerScaleUp", "1 node(s) had untolerated taint")], 60, False),
    "none at most": ([event("NotTriggerScaleUp", "1 max node group size reached")], 60, True),
    "none in a while": ([event("NotTriggerScaleUp", "1 in backoff after failed scale-up")], 60, True),
    "the last one counts": ([event("TriggeredScaleUp"), event("NotTriggerScaleUp", "no")], 60, False),
    "no autoscaler": ([event("FailedScheduling", "0/3")], 60, False),
    "too old for events": ([], 3001, True),
}


@pytest.mark.parametrize(("events", "age_s", "may_come"), SCALING.values(), ids=SCALING)
def test_nodes_may_come_by_what_an_autoscaler_said_last(events: list[PodEvent], age_s: float, may_come: bool) -> None:
    assert may_nodes_come(events, age_s) is may_come
    said = [each for each in events if each.reason != "FailedScheduling"]
    assert last_autoscaler_event(events) == (said[-1] if said else None)


def test_the_report_of_a_container_is_read_and_a_tail_of_a_log_is_none() -> None:
    report = FailureReport(reason="CorruptFile", message="a.jsonl is corrupt", exit_code=4, attempt=2)
    log, told = ({"state": {"terminated": {"message": text}}} for text in ("Traceback", report.model_dump_json()))
    assert read_termination_message([pod(containerStatuses=[log, told])]) == report
    assert read_termination_message([pod(containerStatuses=[log]), pod()]) is None


def test_a_pod_that_was_killed_for_its_memory_is_found_with_what_to_raise() -> None:
    killed = oom_killed()
    assert find_oom_killed([pod(), killed]) is killed
    assert find_oom_killed([pod()]) is None
    killed["metadata"]["labels"] = {"ray.io/node-type": "worker"}
    assert "its limit is 1Gi. Raise the limit (workers.resources.limits.memory), for example 1536Mi" in oom_advice(
        killed
    )
    assert oom_advice(oom_killed(limit=None)).endswith("has no limit: its node has too little memory")


@pytest.mark.parametrize(("limit", "more"), [("1Gi", "1536Mi"), ("700Mi", "1050Mi"), ("2G", "2861Mi")])
def test_more_memory_is_half_as_much_again(limit: str, more: str) -> None:
    assert more_memory(limit) == more
