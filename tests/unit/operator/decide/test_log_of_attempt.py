"""The status of an attempt names the log that its driver has left at the output."""

from __future__ import annotations

import pytest

from support.cluster.story import failure, running

LOG = "gs://tokens/demo/_tokenization/logs/1-1.log.zst"


def test_an_attempt_that_fails_names_its_log_and_the_next_one_has_none() -> None:
    story = running()
    story.report(progress={"attempt": 1, "failure": failure(1, 1, "Bug"), "logUri": LOG})
    assert story.where == ("Retrying", "Bug")
    assert story.status["attempt"]["logUri"] == LOG
    story.pass_time(1200)
    assert story.status["attempt"]["number"] == 2
    assert "logUri" not in story.status["attempt"]
    story.run()
    assert "logUri" not in story.status["attempt"]


def test_an_attempt_that_succeeds_names_its_log() -> None:
    story = running()
    story.report(progress={"attempt": 1, "logUri": LOG})
    story.commit()
    assert story.status["attempt"]["logUri"] == LOG


def test_an_attempt_that_is_stopped_names_its_log() -> None:
    story = running()
    story.report(progress={"attempt": 1, "logUri": LOG})
    story.settle()
    assert story.where[0] == "Running"
    assert story.status["attempt"]["logUri"] == LOG


@pytest.mark.parametrize("attempt", [0, 2])
def test_the_log_of_another_attempt_is_not_taken_for_it(attempt: int) -> None:
    story = running()
    story.report(progress={"attempt": attempt, "logUri": LOG})
    assert "logUri" not in story.status["attempt"]
