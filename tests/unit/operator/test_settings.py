"""What the environment of the operator's container means."""

from __future__ import annotations

import pytest

from tokenization_operator.settings import Settings, SettingsInvalid

NEEDED = {"TOKENIZATION_WORKER_IMAGE": "worker:1", "TOKENIZATION_RAY_VERSION": "2.60.0"}


def test_what_is_absent_or_empty_has_its_default() -> None:
    empty = {"TOKENIZATION_NAMESPACES": "", "TOKENIZATION_CURRENCY": "", "TOKENIZATION_PLAN_RESOURCES": ""}
    assert Settings.from_environment(NEEDED) == Settings.from_environment(NEEDED | empty)
    assert Settings.from_environment(NEEDED) == Settings("worker:1", "2.60.0")


def test_what_is_set_is_taken() -> None:
    found = Settings.from_environment(
        NEEDED
        | {
            "TOKENIZATION_NAMESPACES": "a, b c",
            "TOKENIZATION_PLAN_DEADLINE_SECONDS": "60",
            "TOKENIZATION_PRICE_PER_CHIP_HOUR": "1.2",
            "TOKENIZATION_PRICE_PER_CPU_HOUR": "0.04",
            "TOKENIZATION_PLAN_RESOURCES": '{"limits": {"memory": "3Gi"}}',
            "TOKENIZATION_JOB_PODS": '{"labels": {"team": "a"}, "workers": {"resources": {"limits": {"cpu": 8}}}}',
        }
    )
    assert found.namespaces == ("a", "b", "c")
    assert (found.plan_deadline_s, found.price_per_chip_hour, found.price_per_cpu_hour) == (60, 1.2, 0.04)
    assert found.pod_resources == {"limits": {"memory": "3Gi"}}
    assert found.job_pods.labels == {"team": "a"}
    assert found.job_pods.workers.resources.limits == {"cpu": 8}


@pytest.mark.parametrize(("value", "user_id"), [("", 1000), ('{"userId": 2000}', 2000), ('{"userId": null}', None)])
def test_the_user_of_jobs_pods_is_ours_or_the_charts_or_the_clusters(value: str, user_id: int | None) -> None:
    found = Settings.from_environment(NEEDED | {"TOKENIZATION_JOB_PODS": value})
    assert found.job_pods.user_id == user_id


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("TOKENIZATION_WORKER_IMAGE", "", "is not set"),
        ("TOKENIZATION_RESYNC_SECONDS", "soon", "expected a number"),
        ("TOKENIZATION_RESYNC_SECONDS", "0", "above 0"),
        ("TOKENIZATION_PLAN_RESOURCES", "[1]", "expected a JSON object"),
        ("TOKENIZATION_PLAN_RESOURCES", "{", "is not JSON"),
        ("TOKENIZATION_JOB_PODS", '{"label": {}}', 'label: unknown field; did you mean "labels"'),
        ("TOKENIZATION_JOB_PODS", '{"labels": {"ray.io/x": "y"}}', "labels: .*find their objects by this key"),
        ("TOKENIZATION_JOB_PODS", '{"head": {"resources": {"limits": {"cpu": "2x"}}}}', "cpu: .*quantity"),
    ],
)
def test_what_makes_no_sense_is_named(name: str, value: str, words: str) -> None:
    with pytest.raises(SettingsInvalid, match=words) as caught:
        Settings.from_environment(NEEDED | {name: value})
    assert name in str(caught.value)
