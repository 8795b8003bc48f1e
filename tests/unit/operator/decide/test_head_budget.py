"""The PodDisruptionBudget of an attempt's head."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kubernetes.aio.client.exceptions import ApiException

from support.cluster.story import SETTINGS, Story, planned
from tokenization_operator.decide.actions import Create
from tokenization_operator.kube.client import Conflict, Rejected
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.settings import HeadDefaults, JobPods


def test_an_attempt_has_one_from_its_first_cluster_on_and_keeps_it_for_others() -> None:
    story = planned()
    assert story.names(Kind.DISRUPTION_BUDGET) == []
    for cluster in ("demo-r1-a1-x", "demo-r1-a1-y"):
        story.ray(jobDeploymentStatus="Initializing", rayClusterName=cluster)
        [checkpoint] = story.api.of(Kind.CHECKPOINT)
        assert checkpoint["spec"]["writerPodPrefix"] == f"{cluster}-head"
    [budget] = story.api.of(Kind.DISRUPTION_BUDGET)
    assert story.made(Kind.DISRUPTION_BUDGET) == [budget["metadata"]["name"]] == ["demo-r1-a1"]
    [ray_job] = story.api.of(Kind.RAY_JOB)
    head = ray_job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["metadata"]["labels"]
    wanted = head | {"ray.io/node-type": "head"}
    assert budget["spec"]["selector"]["matchLabels"] == wanted
    assert [owner["uid"] for owner in budget["metadata"]["ownerReferences"]] == [ray_job["metadata"]["uid"]]


@pytest.mark.parametrize(
    "error",
    [Rejected("poddisruptionbudgets is forbidden"), Conflict(), ApiException(status=504), TimeoutError()],
    ids=lambda error: type(error).__name__,
)
def test_a_cluster_without_budgets_runs_jobs_all_the_same(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    story = planned()
    create = story.kube.create

    async def refuse(wanted: Create, uid: str) -> dict[str, Any]:
        if wanted.kind is Kind.DISRUPTION_BUDGET:
            raise error
        return await create(wanted, uid)

    monkeypatch.setattr(story.kube, "create", refuse)
    story.run()
    assert story.where == ("Running", "Running")
    [checkpoint] = story.api.of(Kind.CHECKPOINT)
    assert checkpoint["spec"]["writerPodPrefix"] == "demo-r1-a1-abcde-head"


def test_the_chart_can_turn_budgets_off() -> None:
    story = Story({}, replace(SETTINGS, job_pods=JobPods(head=HeadDefaults(disruption_budget=False))))
    story.plan()
    story.run()
    assert story.where == ("Running", "Running")
    assert story.made(Kind.DISRUPTION_BUDGET) == []
