"""TPU hosts: Pods are bound by the real scheduler to the nodes that GKE would give them, and to no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.cluster.jobs import Jobs, local_spec, wait_for
from testbed.cluster import Testbed
from testbed.nodes import tpu_node
from tokenization_operator.objects.kinds import Kind

pytestmark = pytest.mark.testbed

IMAGE = "testbed/worker:plan-run.driver-hold"
V4, V5E, V5P, V6E, V7X = "tpu-v4-podslice", "tpu-v5-lite-podslice", "tpu-v5p-slice", "tpu-v6e-slice", "tpu7x"

HOSTS = {
    "v4-one": (V4, "2x2x1", 4, ""),
    "v4-two-a": (V4, "2x2x2", 4, ""),
    "v4-two-b": (V4, "2x2x2", 4, ""),
    "v5e-one-chip": (V5E, "1x1", 1, ""),
    "v5e-four-a": (V5E, "4x4", 4, ""),
    "v5e-four-b": (V5E, "4x4", 4, ""),
    "v5e-four-c": (V5E, "4x4", 4, ""),
    "v5e-four-d": (V5E, "4x4", 4, ""),
    "v5p-two-a": (V5P, "2x2x2", 4, ""),
    "v5p-two-b": (V5P, "2x2x2", 4, ""),
    "v6e-plain": (V6E, "2x4", 8, ""),
    "v6e-spot": (V6E, "2x4", 8, "spot"),
    "v6e-flex": (V6E, "4x4", 4, "flex-start"),
    "v6e-reserved": (V6E, "1x1", 1, "mine"),
    "v6e-reserved-by-others": (V6E, "1x1", 1, "theirs"),
    "v7x-one": (V7X, "2x2x1", 4, ""),
}


def workers(accelerator: str, topology: str, chips: int, share: str = "Exclusive", **more: Any) -> dict[str, Any]:
    tpu = {"accelerator": accelerator, "topology": topology, "chipsPerHost": chips, "share": share}
    return {"tpu": tpu, **more}


CASES = {
    "v4, one host": (workers(V4, "2x2x1", 4), 1, {"v4-one"}),
    "v4, a slice of two hosts": (workers(V4, "2x2x2", 4), 2, {"v4-two-a", "v4-two-b"}),
    "v5e, one chip": (workers(V5E, "1x1", 1), 1, {"v5e-one-chip"}),
    "v5e, a slice of four hosts": (
        workers(V5E, "4x4", 4),
        4,
        {"v5e-four-a", "v5e-four-b", "v5e-four-c", "v5e-four-d"},
    ),
    "v5p, a slice of two hosts": (workers(V5P, "2x2x2", 4), 2, {"v5p-two-a", "v5p-two-b"}),
    "v7x, one host": (workers(V7X, "2x2x1", 4), 1, {"v7x-one"}),
    "any capacity, also Spot": (workers(V6E, "2x4", 8, replicas=2), 2, {"v6e-plain", "v6e-spot"}),
    "on demand, never Spot": (workers(V6E, "2x4", 8, capacity="OnDemand"), 1, {"v6e-plain"}),
    "Spot only": (workers(V6E, "2x4", 8, capacity="Spot"), 1, {"v6e-spot"}),
    "flex-start": (
        workers(V6E, "4x4", 4, share="HostCpu", capacity="FlexStart"),
        1,
        {"v6e-flex"},
    ),
    "a reservation": (
        workers(V6E, "1x1", 1, capacity="Reservation", reservationName="mine"),
        1,
        {"v6e-reserved"},
    ),
    "idle CPUs of hosts, one Pod each": (
        workers(V5E, "4x4", 4, share="HostCpu", replicas=3),
        3,
        {"v5e-four-a", "v5e-four-b", "v5e-four-c", "v5e-four-d"},
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _hosts(bed: Testbed) -> None:
    bed.create_nodes(*(tpu_node(name, *host) for name, host in HOSTS.items()))


@pytest.mark.parametrize("case", CASES)
def test_workers_are_bound_to_the_hosts_that_were_asked_for(case: str, team: Jobs, tmp_path: Path) -> None:
    asked, count, expected = CASES[case]
    name = f"place-{list(CASES).index(case)}"
    team.apply(name, local_spec(tmp_path, workers=asked, image=IMAGE))
    pods = wait_for(lambda: ray_pods(team, name), lambda found: len(found) == count + 1 and all(map(is_bound, found)))
    status = team.wait(name, lambda status: (status.get("workers") or {}).get("ready") == count)
    found = {pod["spec"]["nodeName"] for pod in pods if role(pod) == "worker"}
    assert found <= expected
    assert len(found) == count, "no two workers on one host"
    assert [pod["spec"]["nodeName"] for pod in pods if role(pod) == "head"] == ["cpu-0"]
    assert status["workers"] == {"desired": count, "ready": count}
    chips = [pod["spec"]["containers"][0]["resources"]["limits"].get("google.com/tpu") for pod in pods]
    share = asked["tpu"]["share"]
    assert sorted(filter(None, chips)) == ([str(asked["tpu"]["chipsPerHost"])] * count if share == "Exclusive" else [])
    team.delete(name)
    wait_for(lambda: ray_pods(team, name), lambda left: not left)


def test_workers_on_idle_cpus_give_way_to_everybody(team: Jobs, tmp_path: Path) -> None:
    spec = local_spec(tmp_path, workers=workers(V5E, "1x1", 1, share="HostCpu"), image=IMAGE)
    team.apply("modest", spec)
    pods = wait_for(lambda: ray_pods(team, "modest"), lambda found: len(found) == 2)
    [worker] = [pod for pod in pods if role(pod) == "worker"]
    assert worker["spec"]["priority"] < 0
    assert worker["spec"]["preemptionPolicy"] == "Never"
    assert worker["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "true"
    team.delete("modest")


def test_no_node_watches_logs_that_no_driver_reads(team: Jobs, tmp_path: Path) -> None:
    team.apply("quiet", local_spec(tmp_path, image=IMAGE))
    pods = wait_for(lambda: ray_pods(team, "quiet"), lambda found: len(found) == 2)
    commands = [" ".join(pod["spec"]["containers"][0]["args"]) for pod in pods]
    assert all("ray start" in command and " --include-log-monitor=0 " in command for command in commands), commands
    team.delete("quiet")


def ray_pods(team: Jobs, name: str) -> list[dict[str, Any]]:
    """Head and workers of a job."""
    return [pod for pod in team.all(Kind.POD) if pod["metadata"]["name"].startswith(f"{name}-r") and role(pod)]


def role(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"].get("ray.io/node-type", ""))


def is_bound(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName"))
