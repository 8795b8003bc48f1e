"""What can never start ends after minutes, what may still start does not, and a changed job begins anew at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from kubernetes.aio.client.exceptions import ApiException

from support.cluster.story import Story, failure, planned, running
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.observe.observation import PodEvent
from tokenization_operator.observe.pod_diagnosis import NODE_PATIENCE_S, POD_PATIENCE_S, diagnose
from tokenization_worker.api.types.times import time_text

NO_SECRET = 'secret "hugging-face" not found'
SCHEDULER = "0/5 nodes are available: 5 Insufficient cpu. preemption: 0/5 nodes are available: "
NO_NODE = f"{SCHEDULER}5 Preemption is not helpful for scheduling."
SOME_NODE = f"{SCHEDULER}1 No preemption victims found for incoming pod, 4 Preemption is not helpful for scheduling."
INVALID = 'Error creating: Pod "demo-x" is invalid: limits[google.com/tpu]: Invalid value: "0.5": must be an integer'


def waiting(reason: str, message: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"name": "x", "image": "worker:1", "state": state}]}


def homeless(message: str, reason: str = "Unschedulable") -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"phase": "Pending", "conditions": [condition]}


READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def pod(story: Story, status: dict[str, Any], node_type: str = "worker", name: str = "") -> str:
    """A Pod of the plan, or of the attempt that is there, as a kubelet or the scheduler speaks of it; its name."""
    job = "tokenization.dev/job"
    if story.names(Kind.RAY_JOB):
        [owner] = story.names(Kind.RAY_JOB)
        labels = {"ray.io/cluster": f"{owner}-abcde", "ray.io/node-type": node_type, job: "demo"}
    else:
        [owner] = [name for name in story.names(Kind.PLAN_JOB) if name == story.status["run"]["planJob"]]
        labels = {"batch.kubernetes.io/job-name": owner, job: "demo"}
    name = name or f"{owner}-{node_type}"
    body = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"name": "x"}]}, "status": status}
    story.api.create(Kind.POD, body)
    story.settle()
    return name


def beginning(kind: Kind, **spec: object) -> Story:
    """A plan, or an attempt, whose Pods are awaited."""
    if kind is Kind.PLAN_JOB:
        return Story(dict(spec))
    story = planned(**spec)
    story.ray(jobDeploymentStatus="Initializing")
    return story


BOTH = pytest.mark.parametrize("kind", [Kind.PLAN_JOB, Kind.RAY_JOB])


@BOTH
def test_a_pod_that_lacks_a_secret_ends_the_run_after_five_minutes(kind: Kind) -> None:
    story = beginning(kind)
    pod(story, waiting("CreateContainerConfigError", NO_SECRET))
    story.pass_time(POD_PATIENCE_S - 1)
    assert story.where[1] == "PodInvalid"
    assert story.where[0] != "Failed"
    assert story.reconcile() == 1, "it looks again at the very moment"
    story.pass_time(1)
    assert story.where == ("Failed", "PodInvalid")
    assert NO_SECRET in story.status["message"]
    assert "Correct the job" in story.status["message"]
    assert story.names(kind) == []


@BOTH
def test_a_secret_that_comes_in_time_ends_nothing(kind: Kind) -> None:
    story = beginning(kind)
    name = pod(story, waiting("CreateContainerConfigError", NO_SECRET))
    story.pass_time(POD_PATIENCE_S - 1)
    story.api.edit(Kind.POD, name, {"phase": "Running", "containerStatuses": None}, is_status=True)
    story.settle()
    assert "wait" not in story.status
    story.pass_time(POD_PATIENCE_S)
    assert story.where[0] in ("Planning", "Starting")


@BOTH
def test_a_pod_that_kubernetes_refuses_ends_the_run_after_five_minutes(kind: Kind) -> None:
    story = beginning(kind)
    story.api.warnings = [INVALID]
    story.settle()
    story.pass_time(POD_PATIENCE_S)
    assert story.where == ("Failed", "PodInvalid")
    assert "must be an integer" in story.status["message"]


@BOTH
def test_a_pod_that_was_refused_and_is_there_by_now_waits_for_nothing(kind: Kind) -> None:
    story = beginning(kind)
    story.api.warnings = [INVALID]
    story.settle()
    assert story.where[1] == "PodInvalid"
    for node_type in ("head", "worker"):
        if node_type == "head" or kind is Kind.RAY_JOB:
            pod(story, {"phase": "Pending"}, node_type)
    story.pass_time(2 * POD_PATIENCE_S)
    assert story.where[0] in ("Planning", "Starting")
    assert story.where[1] != "PodInvalid"


@pytest.mark.parametrize(
    ("text", "reason", "has_limit", "is_final"),
    [
        ('pods "x" is forbidden: exceeded quota: none, requested: pods=1', "Unschedulable", False, False),
        ('error looking up service account team/x: serviceaccount "x" not found', "NamespaceNotPrepared", False, False),
        ('Internal error occurred: failed calling webhook "a": connection refused', "ClusterRejected", False, False),
        ('admission webhook "a" denied the request: no owner', "ClusterRejected", True, False),
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest"', "ClusterRejected", True, True),
        ('pods "x" is forbidden: maximum cpu usage per Container is 2, but limit is 4', "PodInvalid", True, True),
        ('pods "x" is forbidden: no PriorityClass with name low was found', "PodInvalid", True, True),
        ('pods "x" is forbidden: unable to create: namespace is being terminated', "PodInvalid", False, False),
        ("etcdserver: request timed out", "PodInvalid", False, False),
        (INVALID, "PodInvalid", True, True),
    ],
)
def test_only_a_refusal_that_does_not_pass_has_a_limit(text: str, reason: str, has_limit: bool, is_final: bool) -> None:
    found = diagnose((), [text])
    assert found is not None
    assert (found.reason, found.limit_s is not None, found.is_final) == (reason, has_limit, is_final)


def test_a_final_diagnosis_comes_before_one_that_may_pass() -> None:
    story = beginning(Kind.RAY_JOB, workers={"replicas": 2})
    pod(story, homeless(SOME_NODE), name="a")
    pod(story, waiting("CreateContainerConfigError", NO_SECRET), name="b")
    assert story.where[1] == "PodInvalid"


REFUSED = 'pods "x" is forbidden: violates PodSecurity "restricted:latest"'
QUOTA = 'pods "x" is forbidden: exceeded quota: none, requested: pods=1'


def test_a_refusal_counts_only_while_nothing_newer_is_said() -> None:
    story = beginning(Kind.RAY_JOB, workers={"replicas": 2})
    story.api.warnings = [REFUSED]
    story.settle()
    assert story.where == ("Starting", "ClusterRejected")
    story.now += timedelta(seconds=60)
    story.api.warnings = [QUOTA, REFUSED]  # the newest first
    story.settle()
    assert story.where == ("Starting", "Unschedulable")
    story.pass_time(POD_PATIENCE_S)
    assert story.where == ("Starting", "Unschedulable")


def test_a_request_above_every_node_ends_the_attempt_after_minutes() -> None:
    story = beginning(Kind.RAY_JOB)
    story.api.pod_events = [PodEvent("FailedScheduling", NO_NODE)]
    pod(story, homeless(NO_NODE))
    story.pass_time(NODE_PATIENCE_S - 1)
    assert story.where == ("Starting", "Unschedulable")
    story.pass_time(1)
    assert story.where == ("Retrying", "Unschedulable")
    assert "no node will come: no cluster autoscaler reports that it would add one" in story.status["message"]
    assert NO_NODE in story.status["message"]
    assert story.names(Kind.RAY_JOB) == []


@pytest.mark.parametrize(
    ("event", "ends"),
    [
        (PodEvent("TriggeredScaleUp", "pod triggered scale-up: [{tpu 0->1 (max: 4)}]"), False),
        (PodEvent("Nominated", "Pod should schedule on: nodeclaim/x"), False),
        (PodEvent("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached"), False),
        (PodEvent("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 in backoff after failed scale-up"), False),
        (PodEvent("NotTriggerScaleUp", "pod didn't trigger scale-up: 3 Insufficient cpu"), True),
    ],
    ids=["adds one", "karpenter adds one", "all are in use", "none to be had now", "none is large enough"],
)
def test_an_autoscaler_that_may_add_a_node_is_waited_for(event: PodEvent, ends: bool) -> None:
    story = beginning(Kind.RAY_JOB, startupDeadlineSeconds=7200)
    story.api.pod_events = [event, PodEvent("FailedScheduling", NO_NODE)]
    pod(story, homeless(NO_NODE))
    for _ in range(1 if ends else 3):
        story.pass_time(NODE_PATIENCE_S)
    assert story.where == ("Retrying" if ends else "Starting", "Unschedulable")
    assert (event.message in story.status["message"]) == ends


def test_an_autoscaler_whose_words_may_be_gone_by_now_is_waited_for() -> None:
    story = beginning(Kind.RAY_JOB, startupDeadlineSeconds=7200)
    name = pod(story, homeless(SOME_NODE))
    story.pass_time(3001)
    story.api.edit(Kind.POD, name, homeless(NO_NODE), is_status=True)
    story.settle()
    story.pass_time(NODE_PATIENCE_S)
    assert story.where == ("Starting", "Unschedulable")


ALL_AWAY = NO_NODE.replace("Insufficient cpu", "node(s) had untolerated taint(s)")
GATED = "Scheduling is blocked due to non-empty scheduling gates"


@pytest.mark.parametrize("words", [SOME_NODE, ALL_AWAY, GATED], ids=["in use", "all nodes are away", "gated"])
def test_a_pod_that_a_node_could_hold_waits_for_its_whole_time(words: str) -> None:
    story = beginning(Kind.RAY_JOB)
    pod(story, homeless(words))
    story.pass_time(3000)
    assert story.where == ("Starting", "Unschedulable")


CHANGES = [
    {"env": [{"name": "A", "value": "b"}]},
    {"workers": {"resources": {"requests": {"cpu": 2}}}},
    {"workers": {"replicas": 2}},
    {"serviceAccountName": "another"},
    {"image": "worker:2"},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
@pytest.mark.parametrize("state", ["no word of KubeRay", "Suspended", "Initializing", "Running"])
def test_a_changed_job_begins_an_attempt_anew_that_has_not_begun(change: dict[str, Any], state: str) -> None:
    story = planned()
    story.api.accounts.add("another")
    if state != "no word of KubeRay":
        story.ray(jobDeploymentStatus=state)
    story.edit(**change)
    assert story.names(Kind.RAY_JOB) == ["demo-r1-a2"]
    assert "failures" not in story.status
    assert story.status["attempt"]["number"] == 2
    story.settle()
    assert story.made(Kind.RAY_JOB) == ["demo-r1-a1", "demo-r1-a2"]


def test_a_changed_job_leaves_an_attempt_alone_that_works() -> None:
    story = running()
    for change in CHANGES:
        story.edit(**change)
    assert story.made(Kind.RAY_JOB) == ["demo-r1-a1"]


@pytest.mark.parametrize(
    "change",
    [{"startupDeadlineSeconds": 7200}, {"infraRetryLimit": 20}, {"backoffLimit": 1}, {"activeDeadlineSeconds": 10**6}],
    ids=lambda change: next(iter(change)),
)
def test_limits_that_only_the_operator_looks_at_take_no_machine_away(change: dict[str, int]) -> None:
    story = beginning(Kind.RAY_JOB)
    story.edit(**change)
    assert story.made(Kind.RAY_JOB) == ["demo-r1-a1"]
    if "startupDeadlineSeconds" in change:
        story.pass_time(7199)
        assert story.where[0] == "Starting"


def test_a_changed_job_plans_anew_while_its_pod_cannot_start() -> None:
    story = Story()
    pod(story, waiting("CreateContainerConfigError", NO_SECRET))
    story.pass_time(200)
    story.edit(env=[{"name": "A", "value": "b"}])
    assert story.names(Kind.PLAN_JOB) == ["demo-r1-p2"]
    assert story.where == ("Planning", "Planning")
    assert "failures" not in story.status
    story.edit(env=[{"name": "A", "value": "c"}])
    assert story.names(Kind.PLAN_JOB) == ["demo-r1-p2"], "a plan that goes on is left alone"


def test_a_run_that_could_not_start_goes_on_when_the_job_is_corrected() -> None:
    story = beginning(Kind.RAY_JOB)
    pod(story, waiting("CreateContainerConfigError", NO_SECRET))
    story.pass_time(POD_PATIENCE_S)
    assert story.where == ("Failed", "PodInvalid")
    story.edit(env=[{"name": "A", "value": "b"}])
    assert story.names(Kind.RAY_JOB) == ["demo-r1-a2"]


def test_kuberay_that_says_nothing_for_a_minute_is_named() -> None:
    story = planned()
    story.pass_time(59)
    assert story.where == ("Starting", "WaitingForWorkers")
    assert story.reconcile() == 1
    story.pass_time(1)
    assert story.where == ("Starting", "KubeRaySilent")
    assert "kubectl get pods" in story.status["message"]
    story.ray(jobDeploymentStatus="Initializing")
    assert story.where == ("Starting", "WaitingForWorkers")


@pytest.mark.parametrize(
    ("edit", "phase", "reason"),
    [
        ({"suspend": True}, "Suspending", "Suspending"),
        ({"rerunToken": "2"}, "Running", "Rerun"),
        ({"backoffLimit": 9}, "Retrying", "StorageFailed"),
    ],
    ids=["suspended", "run again", "failed"],
)
def test_kuberay_that_does_not_let_go_of_a_ray_job_is_named(edit: dict[str, object], phase: str, reason: str) -> None:
    """Its Pods run on."""
    story = running()
    story.api.edit(Kind.JOB, "demo", {"spec": edit})
    if phase == "Retrying":
        said = {"attempt": 1, "failure": failure(1, 5, "StorageFailed")}
        story.api.edit(Kind.CHECKPOINT, story.status["run"]["checkpoint"], {"progress": said}, is_status=True)
    for seconds, expected in ((0, reason), (59, reason), (1, "KubeRaySilent"), (4000, "KubeRaySilent")):
        story.now += timedelta(seconds=seconds)
        due = [story.reconcile() for _ in range(3)][-1]
        assert story.where == (phase, expected)
        assert due == 1 or seconds != 59
    assert "KubeRay has not let go of the deleted RayJob demo-r1-a1 for 60 s" in story.status["message"]
    assert story.names(Kind.RAY_JOB) == ["demo-r1-a1"]
    story.settle()
    assert story.status["reason"] != "KubeRaySilent"


def test_a_queue_is_no_silence() -> None:
    story = planned()
    story.api.edit(Kind.RAY_JOB, "demo-r1-a1", {"spec": {"suspend": True}})
    story.settle()
    story.pass_time(3600)
    assert story.where == ("Queued", "Queued")


def test_finalizers_of_others_keep_no_machines() -> None:
    story = running()
    leaving = {"deletionTimestamp": "2026-11-22T12:00:00Z", "finalizers": ["example.com/archive"]}
    story.api.edit(Kind.JOB, "demo", {"metadata": leaving})
    story.settle()
    assert story.names(Kind.RAY_JOB) == []
    assert story.names(Kind.PLAN_JOB) == []
    assert (Kind.JOB, "demo") in story.api.objects
    told = [words for reason, words in story.api.events if reason == "MachinesReturned"]
    assert len(told) == 1
    assert "example.com/archive" in told[0]


def test_a_job_that_is_to_leave_its_children_behind_leaves_them() -> None:
    story = running()
    leaving = {"deletionTimestamp": "2026-11-22T12:00:00Z", "finalizers": ["orphan"]}
    story.api.edit(Kind.JOB, "demo", {"metadata": leaving})
    story.settle()
    assert story.names(Kind.RAY_JOB) == ["demo-r1-a1"]


@pytest.mark.parametrize(("attempt", "owner"), [("0", "the plan"), ("2", "the attempt")])
def test_an_image_that_cannot_be_pulled_says_what_starts_again(attempt: str, owner: str) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    pod = {
        "metadata": {"name": "p", "labels": {"tokenization.dev/attempt": attempt}},
        "status": {"containerStatuses": [{"image": "i", "state": {"waiting": waiting}}]},
    }
    found = diagnose([pod], ())
    assert found is not None
    assert found.message.endswith(f"imagePullSecrets: {owner} starts again at once when the job is changed")


UNREADABLE = [ApiException(status=403), TimeoutError(), aiohttp.ClientConnectionError()]


@BOTH
@pytest.mark.parametrize("error", UNREADABLE, ids=["refused", "no answer", "no connection"])
def test_events_that_cannot_be_read_hold_nothing_up(
    kind: Kind, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    story = Story() if kind is Kind.PLAN_JOB else planned()
    story.api.events_fail = error
    story.pass_time(30)
    story.pass_time(30)
    assert caplog.text.count("cannot read the events of namespace") == 1
    if kind is Kind.PLAN_JOB:
        story.plan()
        assert story.where[0] == "Starting"
    else:
        story.run()
        assert story.where == ("Running", "Running")


@BOTH
def test_a_wait_goes_on_while_events_cannot_be_read(kind: Kind) -> None:
    story = beginning(kind)
    story.api.warnings = [INVALID]
    story.settle()
    story.api.events_fail = TimeoutError()
    story.pass_time(POD_PATIENCE_S)
    assert story.where[0] in ("Planning", "Starting"), "whether it still holds is unknown"
    story.api.events_fail = None
    story.settle()
    assert story.where == ("Failed", "PodInvalid")


@BOTH
def test_a_wait_that_ends_within_minutes_says_when(kind: Kind) -> None:
    story = beginning(kind)
    story.api.warnings = [INVALID]
    story.settle()
    assert f"until {time_text(story.now + timedelta(seconds=POD_PATIENCE_S))}" in story.status["message"]


def test_a_pod_without_a_node_is_waited_for_while_events_of_autoscalers_are_unreadable() -> None:
    story = beginning(Kind.RAY_JOB, startupDeadlineSeconds=7200)
    pod(story, homeless(NO_NODE))
    story.api.events_fail = TimeoutError()
    story.pass_time(2 * NODE_PATIENCE_S)
    assert story.where == ("Starting", "Unschedulable")
    story.api.events_fail = None
    story.api.pod_events = [PodEvent("FailedScheduling", NO_NODE)]
    story.settle()
    assert story.where == ("Retrying", "Unschedulable")
