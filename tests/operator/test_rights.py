"""The operator uses all rights that its roles give: what it asks of a real API server is what they allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from support.cluster.held import hold
from support.cluster.jobs import Jobs, local_spec, wait_for
from support.cluster.operators import Release, render
from testbed.api_proxy import ApiProxy, Asked
from testbed.cluster import Testbed
from tokenization_operator.objects.kinds import Kind

pytestmark = [pytest.mark.testbed, pytest.mark.slow]

Right = tuple[str, str, str]
"""API group, resource (with its subresource), verb."""

_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


def right_of(asked: Asked) -> Right | None:
    """What a request needs; None for the discovery of kinds, which everybody may."""
    words = asked.path.strip("/").split("/")
    group, rest = ("", words[2:]) if words[0] == "api" else ("".join(words[1:2]), words[3:])
    if rest[:1] == ["namespaces"]:
        rest = rest[2:]
    if not rest:
        return None
    resource, *named = rest
    of_reads = "watch" if asked.is_watch else "get" if named else "list"
    return group, "/".join([resource, *named[1:]]), _VERBS.get(asked.method, of_reads)


def rights_of(rules: list[dict[str, Any]]) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def foreign(name: str, kind: str, api_version: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


CONTAINER = {"name": "x", "image": "testbed/worker:hold"}
RAY_JOB = {"entrypoint": "true", "suspend": True, "rayClusterSpec": {"headGroupSpec": {}}}
"""A RayJob of another owner, who suspends it."""


def test_the_operator_asks_for_all_that_its_roles_allow_and_for_nothing_else(
    release: Release, jobs: Jobs, bed: Testbed, api: client.ApiClient, tmp_path: Path
) -> None:
    objects = render(release.namespace, f'watchNamespaces=["{release.namespace}"]')
    roles = {each["metadata"]["name"]: each["rules"] for each in objects if each["kind"] == "Role"}
    [name] = [name for name in roles if not name.endswith("-lease")]
    allowed = rights_of(roles[name])
    pod = {"containers": [CONTAINER], "restartPolicy": "Never"}
    template = {"spec": pod}
    jobs.create(Kind.PLAN_JOB, foreign("taken-r1-p1", "Job", "batch/v1", {"suspend": True, "template": template}))
    ray_job = RAY_JOB | {"rayClusterSpec": {"headGroupSpec": {"rayStartParams": {}, "template": template}}}
    jobs.create(Kind.RAY_JOB, foreign("foreign-r1-a1", "RayJob", "ray.io/v1", ray_job))
    budget = foreign("headless-r1-a1", "PodDisruptionBudget", "policy/v1", {"minAvailable": 0})
    jobs.create(Kind.DISRUPTION_BUDGET, budget)
    with ApiProxy.of(api) as proxy:
        with release.operator(server=proxy.url):
            jobs.apply("taken", local_spec(tmp_path / "x", image="testbed/worker:hold"))
            jobs.wait("taken", lambda status: status.get("reason") == "NameTaken")
            jobs.apply("foreign", local_spec(tmp_path / "y", ttlSecondsAfterFinished=1))
            jobs.wait("foreign", lambda status: status.get("reason") == "NameTaken")
            jobs.delete("foreign-r1-a1", Kind.RAY_JOB)  # then it goes on, and is deleted when it has ended
            jobs.apply("corrected", local_spec(tmp_path / "z", image="testbed/worker:hold"))
            wait_for(lambda: "corrected-r1-p1" in jobs.names(Kind.PLAN_JOB), bool)
            jobs.edit("corrected", {"tokenizer": {"name": "cl100k_base"}})
            hold(jobs, "headless", tmp_path)
        # An operator that sees the Pod being deleted need not read it: only the next one finds that it is gone.
        head = jobs.status("headless")["attempt"]["headPod"]
        bed.do("delete", "pod", head, "--namespace", release.namespace, "--grace-period=0", "--force")
        with release.operator(server=proxy.url):
            jobs.wait(
                "headless", lambda status: any(each["reason"] == "HeadLost" for each in status.get("lastFailures", ()))
            )
            wait_for(lambda: "foreign" not in jobs.names(Kind.JOB), bool)

            def used() -> set[Right]:
                return {right for right in map(right_of, proxy.asked) if right is not None}

            found = wait_for(used, lambda rights: rights >= allowed)
    leases = {right for right in found if right[1] == "leases"}
    assert found - leases == allowed
    assert leases <= rights_of(roles[f"{name}-lease"])
