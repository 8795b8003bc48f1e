"""What can never start, what is gone, and what is due, on a real control plane: seen long before the operator looks at
all jobs again.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from support.cluster.jobs import Jobs, local_spec, wait_for
from support.cluster.operators import NEVER_AGAIN, RARELY, WORKERS, Release
from testbed.api_proxy import ApiProxy
from testbed.cluster import Testbed
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.observe.pod_diagnosis import NODE_PATIENCE_S, POD_PATIENCE_S
from tokenization_worker.api.types.times import read_time, time_text

pytestmark = pytest.mark.testbed

HOLDS = "testbed/worker:plan-run.driver-hold"
OPERATOR_OPTIONS = RARELY | NEVER_AGAIN


def wait_longer(jobs: Jobs, name: str, seconds: float) -> None:
    """As if the wait that the job's status tells of had begun so much earlier."""
    since = read_time(jobs.wait(name, lambda status: "wait" in status)["wait"]["since"])
    assert since is not None
    earlier = time_text(since - timedelta(seconds=seconds))
    jobs.patch(Kind.JOB, name, {"wait": {"since": earlier}}, is_status=True)


def machines(jobs: Jobs, name: str) -> list[str]:
    """What holds nodes for a job."""
    return [each for kind in (Kind.RAY_JOB, Kind.POD) for each in jobs.names(kind) if each.startswith(f"{name}-r1-a")]


def test_workers_that_lack_a_secret_end_the_run_and_a_corrected_job_goes_on(team: Jobs, tmp_path: Path) -> None:
    team.apply("secretless", local_spec(tmp_path, image="testbed/worker:plan-run.worker-secretless"))
    status = team.reach("secretless", "Starting", "PodInvalid")
    assert 'secret "hugging-face" not found' in status["message"]
    wait_longer(team, "secretless", POD_PATIENCE_S)
    team.reach("secretless", "Failed", "PodInvalid", POD_PATIENCE_S / 2)
    wait_for(lambda: machines(team, "secretless"), lambda left: not left)
    team.edit("secretless", {"image": HOLDS})
    assert team.reach("secretless", "Starting", "WaitingForDriver")["attempt"]["number"] == 2


def test_a_job_that_is_corrected_while_it_waits_begins_anew_uncounted(team: Jobs, tmp_path: Path) -> None:
    team.apply("corrected", local_spec(tmp_path, image="testbed/worker:plan-run.driver-hold.worker-secretless"))
    team.reach("corrected", "Starting", "PodInvalid")
    more = {"requests": {"cpu": 2}}
    team.edit("corrected", {"image": HOLDS, "workers": {"resources": more}})
    status = team.reach("corrected", "Starting", "WaitingForDriver")
    assert status["attempt"]["number"] == 2
    assert "lastFailures" not in status


def test_a_request_above_every_node_ends_the_attempt(team: Jobs, tmp_path: Path) -> None:
    team.apply("giant", local_spec(tmp_path, workers={"resources": {"requests": {"cpu": 100_000}}}))
    status = team.wait("giant", lambda status: (status.get("wait") or {}).get("reason") == "Unschedulable")
    assert "Insufficient cpu" in status["message"]
    wait_longer(team, "giant", NODE_PATIENCE_S)
    status = team.reach("giant", "Retrying", "Unschedulable", NODE_PATIENCE_S / 2)
    assert "no cluster autoscaler reports that it would add one" in status["message"]


def test_a_request_that_an_autoscaler_will_satisfy_is_waited_for(
    team: Jobs, api: client.ApiClient, tmp_path: Path
) -> None:
    team.apply("grows", local_spec(tmp_path, workers={"resources": {"requests": {"cpu": 100_000}}}))
    status = team.wait("grows", lambda status: (status.get("wait") or {}).get("reason") == "Unschedulable")
    [worker] = [each for each in team.names(Kind.POD) if each.startswith("grows-r1-a1") and "worker" in each]
    event = {
        "metadata": {"generateName": "grows-"},
        "involvedObject": {"kind": "Pod", "name": worker, "namespace": team.namespace},
        "reason": "TriggeredScaleUp",
        "message": "pod triggered scale-up: [{giants 0->1 (max: 4)}]",
        "lastTimestamp": time_text(datetime.now(UTC)),
        "type": "Normal",
    }
    client.CoreV1Api(api).create_namespaced_event(team.namespace, event)
    wait_longer(team, "grows", NODE_PATIENCE_S)
    late = team.status("grows")["wait"]["since"]
    again = team.wait("grows", lambda status: status["wait"]["since"] > late, NODE_PATIENCE_S / 2)
    assert (again["phase"], again["reason"]) == ("Starting", status["reason"])


def test_pods_that_a_limit_range_refuses_end_the_run(
    release: Release, jobs: Jobs, bed: Testbed, tmp_path: Path
) -> None:
    limits = {"limits": [{"type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "1"}}]}
    kind = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small", "namespace": jobs.namespace}}
    bed.apply(kind | {"spec": limits})
    with release.operator(**RARELY):
        resources = {"requests": {"cpu": 4, "memory": "4Gi"}, "limits": {"cpu": 4, "memory": "4Gi"}}
        jobs.apply("refused", local_spec(tmp_path, workers={"resources": resources}))
        status = jobs.reach("refused", "Starting", "PodInvalid")
        assert "maximum cpu usage per Container is 2" in status["message"]
        wait_longer(jobs, "refused", POD_PATIENCE_S)
        jobs.reach("refused", "Failed", "PodInvalid", POD_PATIENCE_S / 2)


def test_machines_stop_at_once_though_a_finalizer_keeps_the_job(team: Jobs, tmp_path: Path) -> None:
    team.apply("kept", local_spec(tmp_path, image=HOLDS), finalizers=["example.com/archive"])
    team.wait_for_driver("kept")
    team.delete("kept")
    wait_for(lambda: machines(team, "kept"), lambda left: not left)
    assert team.get("kept")["metadata"]["deletionTimestamp"]
    status = team.reach("kept", "Suspended", "MachinesReturned")
    assert "workers" not in status
    assert "example.com/archive" in status["message"]
    told = wait_for(lambda: [each for each in team.events("kept") if each[1] == "MachinesReturned"], bool)
    assert [words for _, _, words in told] == [status["message"]]
    team.patch(Kind.JOB, "kept", {"metadata": {"finalizers": None}})


def test_a_service_account_that_goes_is_seen_within_seconds_and_its_return_too(
    release: Release, jobs: Jobs, bed: Testbed, tmp_path: Path
) -> None:
    with release.operator(**RARELY):
        jobs.apply("orphan", local_spec(tmp_path, image=HOLDS))
        jobs.wait_for_driver("orphan")
        counts = {"attempt": 1, "rangesTotal": 4, "rangesCompleted": 1}
        jobs.patch(Kind.CHECKPOINT, "orphan-r1", {"progress": counts}, is_status=True)
        jobs.reach("orphan", "Running", "Running")
        account = {"apiVersion": "v1", "kind": "ServiceAccount"}
        name = {"metadata": {"name": WORKERS, "namespace": jobs.namespace}}
        bed.kubectl("-n", jobs.namespace, "delete", "serviceaccount", WORKERS)
        status = jobs.reach("orphan", "Running", "NamespaceNotPrepared")
        assert "tokjob namespace-manifest" in status["message"]
        bed.apply(account | name)
        status = jobs.reach("orphan", "Running", "Running")
        assert status["attempt"]["number"] == 1
    assert not release.errors()


def seconds_between(earlier: str, later: str) -> float:
    first, last = read_time(earlier), read_time(later)
    assert first is not None
    assert last is not None
    return (last - first).total_seconds()


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(each for each in status["conditions"] if each["type"] == kind)


@pytest.mark.parametrize("is_running", [False, True], ids=["starting", "running"])
def test_deadline_and_ttl_are_kept_though_the_operator_looks_at_all_jobs_rarely(
    is_running: bool, release: Release, jobs: Jobs, tmp_path: Path
) -> None:
    with release.operator(**RARELY):
        spec = local_spec(tmp_path, image=HOLDS, ttlSecondsAfterFinished=7)
        jobs.apply("late", spec, finalizers=["example.com/archive"])  # which keeps what it is when it is deleted
        jobs.wait_for_driver("late")
        if is_running:
            counts = {"attempt": 1, "rangesTotal": 4, "rangesCompleted": 1}
            jobs.patch(Kind.CHECKPOINT, "late-r1", {"progress": counts}, is_status=True)
            jobs.reach("late", "Running")
        began = jobs.status("late")["run"]["startTime"]
        deadline_s = int(seconds_between(began, time_text(datetime.now(UTC)))) + 15
        jobs.edit("late", {"activeDeadlineSeconds": deadline_s})
        status = jobs.reach("late", "Failed", "DeadlineExceeded")
        ended = condition(status, "Failed")["lastTransitionTime"]
        assert seconds_between(began, ended) >= deadline_s - 1
        left = wait_for(lambda: jobs.get("late"), lambda job: "deletionTimestamp" in job["metadata"])
        assert seconds_between(ended, left["metadata"]["deletionTimestamp"]) >= 7 - 2
        jobs.patch(Kind.JOB, "late", {"metadata": {"finalizers": None}})


def test_the_time_of_a_status_is_that_of_the_api_server(
    release: Release, jobs: Jobs, api: client.ApiClient, tmp_path: Path
) -> None:
    with ApiProxy.of(api) as proxy:
        proxy.skew_s = -7200.0
        with release.operator(server=proxy.url):
            before = datetime.now(UTC)
            jobs.apply("dated", local_spec(tmp_path, suspend=True))
            status = jobs.reach("dated", "Suspended")
            began = read_time(status["run"]["startTime"])
            assert began is not None
            slack = timedelta(seconds=2)  # a `Date` has whole seconds
            assert before - slack <= began - timedelta(seconds=proxy.skew_s) <= datetime.now(UTC) + slack
