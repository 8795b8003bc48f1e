"""An operator after a rollback: what a newer one has written is not understood, and not lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.cluster.story import NAME, SETTINGS, Story, running
from support.places import RELEASED
from tokenization_operator.build.children import Attempt, build_checkpoint, build_plan_job, build_ray_job, image_of
from tokenization_operator.decide.actions import UpdateCheckpoint
from tokenization_operator.decide.status.unknown_fields import keep_unknown_fields
from tokenization_operator.objects.kinds import Kind
from tokenization_worker.api.job import TokenizationJob

NEW = {"aFieldOfTomorrow": {"deep": [1]}}
WRITTEN: dict[str, Any] = json.loads((RELEASED / "checkpoints-0.1.0.json").read_text(encoding="utf-8"))


def with_news(value: Any) -> Any:
    """With a field of a newer version in every block; lists are left as they are."""
    return {name: with_news(item) for name, item in value.items()} | NEW if isinstance(value, dict) else value


def news_in(value: dict[str, Any]) -> set[str]:
    """The blocks below a status that have one, by path; the status itself is `.`."""
    found = {"."} if NEW.items() <= value.items() else set()
    for name, item in value.items():
        if isinstance(item, dict) and name not in NEW:
            found |= {f"{name}{'' if path == '.' else '.' + path}" for path in news_in(item)}
    return found


def rolled_back(story: Story) -> None:
    """A newer operator has worked on the job and on its checkpoint; then this one starts."""
    story.api.edit(Kind.JOB, NAME, with_news(story.status), is_status=True)
    checkpoint = story.status["run"]["checkpoint"]
    there = story.api.objects[Kind.CHECKPOINT, checkpoint]
    story.api.edit(
        Kind.CHECKPOINT, checkpoint, {"spec": with_news(there["spec"]), "status": with_news(there["status"])}
    )
    story.restart()
    story.settle()


def test_a_run_goes_on_to_its_end_and_keeps_what_a_newer_operator_has_written() -> None:
    story = running()
    rolled_back(story)
    everywhere = {".", "run", "attempt", "plan", "progress", "workers", "display"}
    assert everywhere <= news_in(story.status)
    assert story.where == ("Running", "Running")
    story.progress(3)
    assert story.status["progress"]["rangesCompleted"] == 3
    assert everywhere <= news_in(story.status)
    assert story.names(Kind.RAY_JOB) == ["demo-r1-a1"]
    story.commit()
    assert story.where == ("Succeeded", "Committed")
    assert {".", "run", "attempt"} <= news_in(story.status)
    assert story.made(Kind.RAY_JOB) == ["demo-r1-a1"]


def test_what_is_kept_is_not_written_again_and_again() -> None:
    story = running()
    rolled_back(story)
    version = story.job["metadata"]["resourceVersion"]
    story.reconcile()
    story.restart()
    story.reconcile()
    assert story.job["metadata"]["resourceVersion"] == version


def test_another_attempt_has_nothing_of_the_one_before() -> None:
    story = running()
    rolled_back(story)
    story.ray(jobDeploymentStatus="Failed", reason="AppFailed", jobStatus="FAILED")
    story.pass_time(60)
    assert story.status["attempt"]["number"] == 2
    found = news_in(story.status)
    assert {".", "run"} <= found
    assert "attempt" not in found
    [checkpoint] = story.api.of(Kind.CHECKPOINT)
    assert "aFieldOfTomorrow" not in checkpoint["spec"]["attempt"]
    assert "aFieldOfTomorrow" in checkpoint["spec"], "what is not of an attempt"


def test_another_run_has_nothing_of_the_one_before() -> None:
    story = running()
    story.commit()
    rolled_back(story)
    story.edit(rerunToken="2")
    assert story.status["run"]["number"] == 2
    assert news_in(story.status) == set()


def test_a_new_run_of_a_job_without_one_begins_from_nothing() -> None:
    assert keep_unknown_fields({"phase": "Pending", **NEW}, {"run": {"number": 1}}) == {"run": {"number": 1}}


def test_lists_are_replaced_whole() -> None:
    before = {"conditions": [{"type": "Ready", **NEW}, {"type": "Tomorrow"}]}
    after = {"conditions": [{"type": "Ready"}]}
    assert keep_unknown_fields(before, after) == after


def test_the_same_attempt_keeps_what_a_newer_operator_asks_of_it() -> None:
    """With the version that this asks for; only what this operator knows is its own to change."""
    found = {
        "spec": {"attempt": {"number": 1, "slots": 4, "minimumVersion": "0.9.0", **NEW}, "writerPodPrefix": "a", **NEW}
    }
    update = UpdateCheckpoint({}, {"attempt": {"number": 1, "slots": 8}, "writerPodPrefix": "b"})
    assert update.changes(found) == {"attempt": {"slots": 8}, "writerPodPrefix": "b"}
    following = UpdateCheckpoint({}, {"attempt": {"number": 2, "slots": 4}, "writerPodPrefix": "a"})
    assert following.changes(found) == {
        "attempt": {"number": 2, "minimumVersion": None, "aFieldOfTomorrow": None},
    }


def test_a_version_that_only_a_known_field_asked_for_goes_with_it() -> None:
    """A plan is always attempt 0: its job may take out what an older image does not know."""
    found = {"spec": {"attempt": {"number": 0, "tokenizerFingerprint": "ab" * 32, "minimumVersion": "0.3.0"}}}
    update = UpdateCheckpoint({}, {"attempt": {"number": 0}})
    assert update.changes(found) == {"attempt": {"tokenizerFingerprint": None, "minimumVersion": None}}


def test_reports_of_a_newer_worker_are_read() -> None:
    story = Story()
    story.plan(**NEW)
    story.run()
    number = story.status["attempt"]["number"]
    story.report(progress={"attempt": number, "rangesTotal": 4, "rangesCompleted": 2, **NEW}, somethingElse=NEW)
    assert story.where == ("Running", "Running")
    assert story.status["progress"]["rangesCompleted"] == 2
    story.commit(**NEW)
    assert story.where == ("Succeeded", "Committed")


def test_a_worker_that_is_too_old_ends_the_run_in_its_plan_with_the_next_step() -> None:
    story = Story()
    story.plan_fails(2, "WorkerTooOld")
    assert story.where == ("Failed", "WorkerTooOld")
    assert "Next: mend" in story.status["message"]
    assert story.made(Kind.RAY_JOB) == []
    story.edit(image="worker:2")
    assert story.where[0] == "Planning", "it goes on with another image"


# What a newer operator gives an older image


@pytest.mark.parametrize("name", WRITTEN)
def test_the_checkpoint_for_an_image_of_0_1_0_is_what_the_operator_of_0_1_0_wrote(name: str) -> None:
    job = TokenizationJob.from_object(WRITTEN[name]["job"])
    attempt = Attempt(run=1, number=2, image=image_of(job, SETTINGS, None), replicas=job.spec.workers.replicas)
    built = build_checkpoint(job, "uid-1", attempt, "demo-r1-a2-head")
    assert built["spec"] == WRITTEN[name]["checkpoint"]["spec"]


def test_the_words_that_start_an_image_never_change() -> None:
    """They are the other half of what an operator and an image of another version say to each other."""
    job = TokenizationJob.from_object(WRITTEN["smallest"]["job"])
    attempt = Attempt(run=1, number=1, image=image_of(job, SETTINGS, None), replicas=1)
    [plan] = build_plan_job(job, "uid-1", attempt, "demo-r1-plan-1", SETTINGS)["spec"]["template"]["spec"]["containers"]
    assert plan["command"] == ["tokjob", "plan", "--checkpoint", "demo-r1"]
    ray_job = build_ray_job(job, "uid-1", attempt, "2.60.0", SETTINGS)["spec"]
    assert ray_job["entrypoint"] == "tokjob drive"
    [head] = ray_job["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert {"name": "TOKENIZATION_TERMINATION_LOG", "value": "/dev/termination-log"} in plan["env"]
    assert {"name": "TOKENIZATION_CHECKPOINT", "value": "demo-r1"} in head["env"]
