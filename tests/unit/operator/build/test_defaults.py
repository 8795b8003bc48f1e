"""What the chart says of the Pods of all jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.cluster.story import SETTINGS, Story
from tokenization_operator.build.pod import Image, pod_spec
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.settings import JobPods

DEFAULTS = JobPods.model_validate(
    {
        "labels": {"team": "platform", "cost": "7"},
        "annotations": {"note": "default"},
        "tolerations": [{"key": "batch", "operator": "Exists"}],
        "head": {"resources": {"requests": {"cpu": 2}}},
        "workers": {"resources": {"requests": {"cpu": 16, "memory": "32Gi"}}},
        "userId": 2000,
    }
)


def templates_of(spec: dict[str, Any]) -> dict[str, Any]:
    """Templates of the Pods of a planned job, by what they are for."""
    story = Story(spec, replace(SETTINGS, job_pods=DEFAULTS))
    [plan] = story.api.of(Kind.PLAN_JOB)
    story.plan()
    [ray_job] = story.api.of(Kind.RAY_JOB)
    cluster = ray_job["spec"]["rayClusterSpec"]
    return {
        "plan": plan["spec"]["template"],
        "submitter": ray_job["spec"]["submitterPodTemplate"],
        "head": cluster["headGroupSpec"]["template"],
        "workers": cluster["workerGroupSpecs"][0]["template"],
    }


def requests_of(template: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = template["spec"]["containers"][0]["resources"]["requests"]
    return found


def test_a_job_that_says_nothing_has_the_charts_defaults_in_all_pods() -> None:
    templates = templates_of({})
    for template in templates.values():
        assert template["metadata"]["labels"].items() >= {"team": "platform", "cost": "7"}.items()
        assert template["metadata"]["annotations"]["note"] == "default"
        assert {"key": "batch", "operator": "Exists"} in template["spec"]["tolerations"]
        user = template["spec"]["securityContext"]
        assert [user[name] for name in ("runAsUser", "runAsGroup", "fsGroup")] == [2000, 2000, 2000]
    assert requests_of(templates["head"])["cpu"] == 2
    assert requests_of(templates["workers"]) == {"cpu": 16, "memory": "32Gi"}


def test_what_a_job_says_takes_precedence() -> None:
    mine = [{"key": "mine", "operator": "Exists"}]
    spec = {
        "pods": {"labels": {"team": "research"}, "annotations": {"note": "mine"}},
        "workers": {"resources": {"limits": {"memory": "4Gi"}}, "tolerations": mine},
    }
    templates = templates_of(spec)
    workers = templates["workers"]
    assert workers["metadata"]["labels"].items() >= {"team": "research", "cost": "7"}.items()
    assert workers["metadata"]["annotations"]["note"] == "mine"
    assert workers["spec"]["tolerations"][:2] == [*mine, {"key": "batch", "operator": "Exists"}]
    assert requests_of(workers) == {"cpu": "4", "memory": "4Gi"}, "a part of the chart's would not fit the job's"
    assert mine[0] not in templates["head"]["spec"]["tolerations"]


def test_workers_run_as_many_tasks_as_the_charts_resources_allow() -> None:
    story = Story({}, replace(SETTINGS, job_pods=DEFAULTS))
    story.plan()
    [checkpoint] = story.api.of(Kind.CHECKPOINT)
    assert checkpoint["spec"]["attempt"]["slots"] == 16


def test_a_change_of_the_chart_is_no_change_of_the_job() -> None:
    story = Story({})
    story.plan()
    before = story.where, story.names(Kind.RAY_JOB)
    story._settings = replace(SETTINGS, job_pods=DEFAULTS)
    story.restart()
    story.settle()
    assert (story.where, story.names(Kind.RAY_JOB)) == before


@pytest.mark.parametrize("user_id", [1000, None])
def test_the_cluster_chooses_the_user_where_the_chart_names_none(user_id: int | None) -> None:
    context = pod_spec({}, Image("a", "Always", (), "b", user_id))["securityContext"]
    having = set() if user_id is None else {"runAsUser", "runAsGroup", "fsGroup"}
    assert context.keys() - {"runAsNonRoot", "seccompProfile"} == having
