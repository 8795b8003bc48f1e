"""What is reported of a child that the API server refuses, or that could not be created."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from support.cluster.fake_api import FakeKubeClient
from support.cluster.story import Story, planned
from tokenization_operator.decide.actions import Create
from tokenization_operator.kube.client import Conflict, NotOwned, Rejected
from tokenization_operator.objects.kinds import Kind

CHILDREN = pytest.mark.parametrize(
    ("kind", "reason"), [(Kind.PLAN_JOB, "Planning"), (Kind.RAY_JOB, "ClusterRequested")], ids=["plan", "attempt"]
)


class Refusing:
    """Creations of a kind end in an error until `error` is None."""

    def __init__(self, kind: Kind, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = error
        create = FakeKubeClient.create

        async def refuse(kube: FakeKubeClient, wanted: Create, uid: str) -> Any:
            if wanted.kind is kind and self.error is not None:
                raise self.error
            return await create(kube, wanted, uid)

        monkeypatch.setattr(FakeKubeClient, "create", refuse)


def begun(kind: Kind) -> Story:
    return Story() if kind is Kind.PLAN_JOB else planned()


def told(story: Story) -> list[str]:
    return [reason for reason, _ in story.api.events]


def counted(story: Story, reason: str) -> float:
    samples = (each for metric in story.metrics.registry.collect() for each in metric.samples)
    moves = [each for each in samples if each.name == "tokenization_job_transitions_total"]
    return sum(each.value for each in moves if each.labels["reason"] == reason)


@CHILDREN
@pytest.mark.parametrize(
    ("error", "refusal"),
    [(Rejected("no"), "ClusterRejected"), (NotOwned("Job x"), "NameTaken")],
    ids=["rejected", "of another owner"],
)
def test_a_child_that_is_refused_is_not_reported_as_made(
    kind: Kind,
    reason: str,
    error: Exception,
    refusal: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    Refusing(kind, error, monkeypatch)
    story = begun(kind)
    story.pass_time(60)
    assert story.where[1] == refusal
    assert (told(story).count(reason), told(story).count(refusal)) == (0, 1)
    assert (counted(story, reason), counted(story, refusal)) == (0, 1)
    assert f"{reason}: " not in caplog.text


@CHILDREN
def test_a_child_that_is_made_is_reported_once(kind: Kind, reason: str) -> None:
    story = begun(kind)
    assert (told(story).count(reason), counted(story, reason)) == (1, 1)


@CHILDREN
@pytest.mark.parametrize("error", [Conflict(), TimeoutError()], ids=["conflict", "no answer"])
def test_what_was_decided_is_reported_though_an_action_fails(
    kind: Kind, reason: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = Refusing(kind, error, monkeypatch)
    settle = Story.settle

    def fail_first(story: Story) -> None:
        with contextlib.suppress(TimeoutError, AssertionError):  # a conflict is tried again and again
            settle(story)
        refusing.error = None
        settle(story)

    monkeypatch.setattr(Story, "settle", fail_first)
    story = begun(kind)
    assert kind in {made for made, _ in story.api.made}
    assert (told(story).count(reason), counted(story, reason)) == (1, 1)
