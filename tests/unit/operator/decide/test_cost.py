"""What a run cost: from the time that its attempts held machines, and prices of the chart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.cluster.story import SETTINGS, Story
from tokenization_operator.settings import Settings

HOUR_S = 3600
PRICED = replace(SETTINGS, price_per_chip_hour=1.2, price_per_cpu_hour=0.05)
CPU_JOB: dict[str, Any] = {
    "workers": {"replicas": 4, "resources": {"requests": {"cpu": "16"}}},
    "startupDeadlineSeconds": 100 * HOUR_S,
    "stallTimeoutSeconds": 100 * HOUR_S,
}
TPU = {"accelerator": "tpu-v5-lite-podslice", "topology": "2x4", "chipsPerHost": 8}
TPU_JOB: dict[str, Any] = CPU_JOB | {"workers": {"replicas": 2, "tpu": TPU}}
HOST_CPU_JOB: dict[str, Any] = CPU_JOB | {"workers": {"replicas": 2, "tpu": TPU | {"share": "HostCpu"}}}
PLAN = {"estimatedTokens": 10**9, "estimatedSeconds": 2 * HOUR_S}


def begun(spec: dict[str, Any], settings: Settings = PRICED) -> Story:
    story = Story(spec, settings)
    story.plan(**PLAN)
    story.run()
    return story


# What is expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (CPU_JOB, {"cpuHours": "130", "estimatedCost": "6.50 USD"}),
        (TPU_JOB, {"chipHours": "32", "cpuHours": "2", "estimatedCost": "38.50 USD"}),
        (HOST_CPU_JOB, {"cpuHours": "2", "estimatedCost": "0.10 USD"}),
    ],
    ids=["CPU", "TPU", "idle CPUs of TPU hosts"],
)
def test_a_plan_says_what_a_run_will_cost(spec: dict[str, Any], expected: dict[str, str]) -> None:
    story = Story(spec | {"suspend": True}, PRICED)
    story.plan(**PLAN)
    plan = story.status["plan"]
    assert {name: plan[name] for name in ("chipHours", "cpuHours", "estimatedCost") if name in plan} == expected
    assert f"about {expected['estimatedCost']}; " in story.status["message"]


@pytest.mark.parametrize(
    ("spec", "settings", "cost"),
    [
        (CPU_JOB, SETTINGS, None),
        (CPU_JOB, replace(SETTINGS, price_per_chip_hour=1.2), None),
        (TPU_JOB, replace(SETTINGS, price_per_cpu_hour=0.05), None),
        (TPU_JOB, replace(SETTINGS, price_per_chip_hour=1.2), "38.40 USD"),
    ],
    ids=["no price", "CPUs without a price", "chips without a price", "a head without a price"],
)
def test_no_cost_is_made_up(spec: dict[str, Any], settings: Settings, cost: str | None) -> None:
    story = begun(spec, settings)
    story.pass_time(2 * HOUR_S)
    story.commit()
    assert story.status["plan"].get("estimatedCost") == cost
    assert story.status["cost"].get("actual") == cost
    assert story.status["cost"]["hostHours"] == ("8" if spec is CPU_JOB else "4")


# What it came to


def test_a_run_says_what_it_cost_beside_what_was_expected() -> None:
    story = begun(CPU_JOB)
    story.pass_time(HOUR_S)
    story.commit()
    assert story.status["cost"] == {"hostHours": "4", "cpuHours": "65", "actual": "3.25 USD"}
    assert story.status["plan"]["estimatedCost"] == "6.50 USD"
    assert "4,000 tokens in 1h, 3.25 USD: gs://" in story.status["message"]


def test_chips_are_paid_for_by_the_chip() -> None:
    story = begun(TPU_JOB)
    story.pass_time(HOUR_S)
    story.commit()
    assert story.status["cost"] == {"chipHours": "16", "hostHours": "2", "cpuHours": "1", "actual": "19.25 USD"}


def test_attempts_that_failed_cost_too_and_pauses_do_not() -> None:
    story = begun(CPU_JOB)
    story.pass_time(HOUR_S)
    story.driver_fails(5, "StorageFailed")
    assert story.status["cost"]["actual"] == "3.25 USD"
    story.pass_time(HOUR_S)  # the pause, and the start of the next attempt
    story.run()
    began = story.status["attempt"]["admittedTime"]
    assert began == "2026-11-22T14:00:00Z"
    story.pass_time(HOUR_S)
    story.commit()
    assert story.status["cost"]["hostHours"] == "8"
    assert story.status["cost"]["actual"] == "6.50 USD"


def test_time_in_a_queue_and_suspended_costs_nothing() -> None:
    story = Story(CPU_JOB, PRICED)
    story.plan(**PLAN)
    story.ray(jobDeploymentStatus="Suspended")
    story.pass_time(HOUR_S)
    story.run()
    story.pass_time(HOUR_S)
    story.edit(suspend=True)
    assert story.status["cost"]["hostHours"] == "4"
    story.pass_time(HOUR_S)
    story.edit(suspend=False)
    story.run()
    story.commit()
    assert story.status["cost"]["hostHours"] == "4"


def test_machines_that_a_queue_takes_back_were_paid_for_until_then() -> None:
    story = begun(CPU_JOB)
    story.pass_time(HOUR_S)
    story.ray(jobDeploymentStatus="Suspended", jobStatus="")
    assert story.status["cost"]["hostHours"] == "4"
    story.pass_time(HOUR_S)
    story.run()
    story.pass_time(HOUR_S)
    story.commit()
    assert story.status["cost"]["hostHours"] == "8"


def test_machines_that_never_came_cost_nothing() -> None:
    story = Story(CPU_JOB | {"startupDeadlineSeconds": HOUR_S}, PRICED)
    story.plan(**PLAN)
    story.ray(jobDeploymentStatus="Initializing")
    story.pass_time(HOUR_S + 1)
    assert story.where == ("Retrying", "StartupDeadline")
    assert story.status.get("cost", {}).get("hostHours", "0") == "0"


def test_an_edit_while_an_attempt_runs_does_not_change_what_it_costs() -> None:
    story = begun(CPU_JOB)
    story.edit(workers={"replicas": 100, "resources": {"requests": {"cpu": "100"}}})
    story.pass_time(HOUR_S)
    story.commit()
    assert story.status["cost"]["actual"] == "3.25 USD"


def test_a_restart_of_the_operator_changes_no_figure() -> None:
    story = begun(CPU_JOB)
    story.pass_time(HOUR_S)
    story.driver_fails(5, "StorageFailed")
    story.restart()
    story.pass_time(HOUR_S)
    story.run()
    story.pass_time(HOUR_S / 2)
    story.restart()
    story.pass_time(HOUR_S / 2)
    story.commit()
    assert story.status["cost"]["actual"] == "6.50 USD"
    before = story.status
    story.restart()
    story.pass_time(HOUR_S)
    assert story.status == before


def test_what_ended_while_the_operator_was_away_costs_until_it_ended() -> None:
    story = begun(CPU_JOB)
    ended = {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "endTime": "2026-11-22T13:00:00Z"}
    story.api.edit("RayJob", "demo-r1-a1", ended, is_status=True)
    story.pass_time(10 * HOUR_S)
    assert story.status["cost"]["hostHours"] == "4"


def test_a_run_that_ends_late_in_a_pause_pays_once() -> None:
    story = begun(CPU_JOB | {"activeDeadlineSeconds": HOUR_S + 5})
    story.pass_time(HOUR_S)
    story.driver_fails(5, "StorageFailed")
    story.pass_time(6)
    assert story.where == ("Failed", "DeadlineExceeded")
    assert story.status["cost"]["hostHours"] == "4"


def test_a_new_run_counts_its_own_cost() -> None:
    story = begun(CPU_JOB)
    story.pass_time(HOUR_S)
    story.commit()
    story.edit(rerunToken="2")
    assert "cost" not in story.status


def test_what_was_there_already_cost_nothing() -> None:
    story = Story(CPU_JOB, PRICED)
    story.report(plan={"alreadyComplete": True, "planId": "p"})
    story.commit()
    assert story.where == ("Succeeded", "AlreadyComplete")
    assert "cost" not in story.status
