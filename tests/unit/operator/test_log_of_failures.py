"""What the operator logs of a reconcile that failed: the job, and an error with a text."""

from __future__ import annotations

import aiohttp
import pytest

from tokenization_operator.handlers import Operator
from tokenization_operator.metrics import Metrics
from tokenization_operator.settings import Settings


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "TimeoutError: no answer in time"),
        (TimeoutError("connect"), "TimeoutError: connect"),
        (aiohttp.ClientConnectionError(), "ClientConnectionError: the error has no text"),
    ],
    ids=["silent", "with a text", "without a text"],
)
def test_a_failed_reconcile_names_its_job_and_says_why(
    error: Exception, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    operator = Operator(Settings("worker:1", "2.60.0"), Metrics())
    operator._log_failure(("team", "demo"), error)
    assert caplog.messages == [f"reconcile of team/demo failed: {words}"]
    assert [record.job for record in caplog.records] == ["team/demo"]  # type: ignore[attr-defined]
