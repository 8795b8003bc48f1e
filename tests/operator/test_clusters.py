"""Clusters that lack something, and ones whose parts come and go: each has a control plane of its own."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config

from support.cluster.jobs import DEADLINE_S, Jobs, local_spec, wait_for
from support.cluster.operators import CHART, IMAGE, Release, helm, operator_container, run_operator
from support.places import RELEASED
from testbed.accounts import account_kubeconfig
from testbed.cluster import Testbed
from testbed.control_plane import API_SERVER, KUBERAY
from testbed.programs import find_programs
from testbed.shared import CRDS
from tokenization_operator.objects.kinds import Kind

pytestmark = [pytest.mark.testbed, pytest.mark.slow]

NAMESPACE = "team"
FIRST_CHART = RELEASED / "tokenization-operator-0.1.0.tgz"
"""As it was first released."""

Start = Callable[..., Testbed]


@pytest.fixture
def start(bed: Testbed, tmp_path: Path) -> Iterator[Start]:
    """Starts a control plane for this test alone; where there is no `bed`, there is none."""
    with ExitStack() as stack:

        def start(crds: list[Path], *, with_kuberay: bool = True) -> Testbed:
            found = Testbed(tmp_path / "bed", find_programs())
            found.up(crds, with_kuberay=with_kuberay)
            stack.callback(found.down)
            found.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            return found

        yield start


def admin(bed: Testbed) -> client.ApiClient:
    return config.new_client_from_config(str(bed.kubeconfig))


def crds() -> list[Path]:
    return sorted(CRDS.glob("*.yaml"))


def test_a_cluster_without_kuberay_says_so_until_there_is_one_that_is_new_enough(start: Start, tmp_path: Path) -> None:
    bed = start(crds(), with_kuberay=False)
    api = admin(bed)
    release, jobs = Release(bed, api, NAMESPACE, tmp_path), Jobs(api, NAMESPACE)
    with release.operator() as process:
        jobs.apply("demo", local_spec(tmp_path))
        status = jobs.reach("demo", "Pending", "KubeRayUnavailable")
        accepted = next(each for each in status["conditions"] if each["type"] == "Accepted")
        assert (accepted["status"], accepted["reason"]) == ("False", "KubeRayUnavailable")
        assert "install KubeRay 1.6" in accepted["message"]
        bed.apply_crds([without_auth(path, tmp_path) for path in bed.kuberay_crds])
        assert process.wait(DEADLINE_S) == 0, "it restarts, to watch RayJobs"
    with release.operator():
        status = jobs.reach("demo", "Pending", "KubeRayTooOld")
        assert "dashboards would be open to all" in status["message"]
        bed.apply_crds(bed.kuberay_crds)
        jobs.reach("demo", "Starting")
        assert wait_for(lambda: jobs.names(Kind.RAY_JOB), bool) == ["demo-r1-a1"]


def test_kinds_of_kuberay_that_go_and_come_back_need_no_other_operator(start: Start, tmp_path: Path) -> None:
    bed = start(crds())
    api = admin(bed)
    release, jobs = Release(bed, api, NAMESPACE, tmp_path), Jobs(api, NAMESPACE)
    with release.operator(image="testbed/worker:plan-run.driver-hold") as process:
        jobs.apply("demo", local_spec(tmp_path))
        jobs.wait_for_driver("demo")
        bed.kubectl("delete", "--wait=true", *(word for path in bed.kuberay_crds for word in ("-f", str(path))))
        status = jobs.reach("demo", "Pending", "KubeRayUnavailable")
        assert "install KubeRay 1.6" in status["message"]
        bed.processes.stop(KUBERAY)
        bed.apply_crds(bed.kuberay_crds)
        status = jobs.reach("demo", "Starting", "KubeRaySilent")
        assert status["attempt"]["number"] == 2
        bed.processes.start_again(KUBERAY)
        jobs.reach("demo", "Starting", "WaitingForDriver")
        assert process.poll() is None
    assert "Traceback" not in release.log.read_text(encoding="utf-8")


def test_a_suspended_job_says_that_its_pods_run_on_while_kuberay_is_away(start: Start, tmp_path: Path) -> None:
    bed = start(crds())
    api = admin(bed)
    release, jobs = Release(bed, api, NAMESPACE, tmp_path), Jobs(api, NAMESPACE)
    with release.operator(image="testbed/worker:plan-run.driver-hold"):
        jobs.apply("demo", local_spec(tmp_path))
        jobs.wait_for_driver("demo")
        bed.processes.stop(KUBERAY)
        jobs.edit("demo", {"suspend": True})
        status = jobs.wait("demo", lambda status: status["reason"] == "KubeRaySilent")
        assert "has not let go of the deleted RayJob demo-r1-a1" in status["message"]
        phases = [pod["status"]["phase"] for pod in jobs.all(Kind.POD) if "-head" in pod["metadata"]["name"]]
        assert phases == ["Running"]
        bed.processes.start_again(KUBERAY)
        jobs.reach("demo", "Suspended")
        assert jobs.names(Kind.RAY_JOB) == []
        jobs.edit("demo", {"suspend": False, "image": IMAGE})
        status = jobs.reach("demo", "Succeeded")
        assert status.get("failures") is None


def without_auth(path: Path, folder: Path) -> Path:
    """A kind as it was before it had `authOptions`."""
    old = folder / path.name
    found = yaml.safe_load(path.read_text("utf-8"))

    def prune(node: Any) -> None:
        if isinstance(node, dict):
            node.pop("authOptions", None)
            for each in node.values():
                prune(each)
        elif isinstance(node, list):
            for each in node:
                prune(each)

    prune(found)
    old.write_text(json.dumps(found), encoding="utf-8")
    return old


def test_an_operator_of_all_namespaces_outlives_the_api_server(start: Start, tmp_path: Path) -> None:
    bed = start(crds())
    api = admin(bed)
    release, jobs = Release(bed, api, NAMESPACE, tmp_path, everywhere=True), Jobs(api, NAMESPACE)
    with release.operator() as process:
        jobs.apply("demo", local_spec(tmp_path))
        wait_for(lambda: jobs.names(Kind.RAY_JOB), bool)
        bed.processes.stop(API_SERVER, sign=signal.SIGKILL)
        bed.start_api_server_again()
        status = jobs.reach("demo", "Succeeded", "Committed")
        assert status["attempt"]["number"] == 1
        jobs.apply("after", local_spec(tmp_path / "after", suspend=True))
        jobs.reach("after", "Suspended")
        assert process.poll() is None


def test_an_upgrade_brings_new_fields_and_leaves_running_jobs_alone(start: Start, tmp_path: Path) -> None:
    bed = start([])
    api = admin(bed)
    jobs = Jobs(api, NAMESPACE)
    with installed(bed, api, "install", str(FIRST_CHART), "plan-run.driver-hold", tmp_path / "first.log"):
        before = jobs.apply("demo", local_spec(tmp_path))
        wait_for(lambda: jobs.names(Kind.RAY_JOB), bool)
        jobs.wait("demo", lambda status: status["reason"] == "WaitingForDriver")
        ray_job = jobs.get("demo-r1-a1", Kind.RAY_JOB)
    next_chart = with_new_field(tmp_path)
    with installed(bed, api, "upgrade", str(next_chart), "plan-hold", tmp_path / "second.log"):
        job = {"apiVersion": before["apiVersion"], "kind": Kind.JOB, "metadata": {"name": "x", "namespace": NAMESPACE}}
        manifest = json.dumps(job | {"spec": local_spec(tmp_path / "x", nextYear="2027")})
        accepted = bed.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", text=manifest)
        assert not accepted.returncode, accepted.stderr
        jobs.apply("later", local_spec(tmp_path / "later"))
        assert jobs.reach("later", "Planning")["run"]["image"] == "testbed/worker:plan-hold"
        jobs.edit("demo", {"ttlSecondsAfterFinished": 10**6})
        status = jobs.wait("demo", lambda status: status["observedGeneration"] == 2)
        assert status["run"]["image"] == status["attempt"]["image"] == "testbed/worker:plan-run.driver-hold"
        assert (status["phase"], status["attempt"]["number"]) == ("Starting", 1)
    assert jobs.get("demo")["metadata"]["uid"] == before["metadata"]["uid"]
    assert jobs.get("demo-r1-a1", Kind.RAY_JOB)["metadata"]["uid"] == ray_job["metadata"]["uid"]
    assert jobs.get("demo-r1-a1", Kind.RAY_JOB)["spec"] == ray_job["spec"]
    helm("uninstall", "tokens", "--namespace", NAMESPACE, "--kubeconfig", str(bed.kubeconfig))
    assert jobs.names(Kind.JOB) == ["demo", "later"]


def installed(bed: Testbed, api: client.ApiClient, verb: str, chart: str, tag: str, log: Path) -> Any:
    """Install or upgrade by Helm; the operator of it as a process."""
    where = ["--namespace", NAMESPACE, "--kubeconfig", str(bed.kubeconfig)]
    values = {
        "watchNamespaces": [NAMESPACE],
        "jobNamespaces": [{"name": NAMESPACE}],
        "operator.image.repository": "testbed/operator",
        "worker.image": {"repository": "testbed/worker", "tag": tag},
    }
    flags = [word for name, value in values.items() for word in ("--set-json", f"{name}={json.dumps(value)}")]
    helm(verb, "tokens", chart, *where, *flags)
    objects = [each for each in yaml.safe_load_all(helm("get", "manifest", "tokens", *where)) if each]
    kubeconfig = account_kubeconfig(api, NAMESPACE, "tokens", log.with_suffix(".kubeconfig"))
    return run_operator(operator_container(objects), kubeconfig, log, image=None, TOKENIZATION_LEASE_NAME="")


def with_new_field(folder: Path) -> Path:
    """The chart as it will be one day."""
    chart = folder / "next"
    shutil.copytree(CHART, chart)
    path = chart / "files" / "crds" / "tokenization.dev_tokenizationjobs.yaml"
    crd = yaml.safe_load(path.read_text("utf-8"))
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["nextYear"] = {"type": "string"}
    path.write_text(yaml.safe_dump(crd), encoding="utf-8")
    return chart
