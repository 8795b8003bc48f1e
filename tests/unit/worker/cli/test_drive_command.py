"""The driver's command, with a checkpoint that it cannot work on."""

from __future__ import annotations

from typing import Any

import pytest

from tokenization_worker.api.checkpoint import CheckpointProgress
from tokenization_worker.cli import drive_command
from tokenization_worker.errors import SpecError


def test_an_image_that_is_too_old_for_its_attempt_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the operator takes the driver for a lost one, and tries ten times again."""
    reports: list[tuple[CheckpointProgress, bool]] = []

    class Client:
        def __init__(self, name: str) -> None:
            assert name == "demo-r1"

        def read(self) -> dict[str, Any]:
            return {"metadata": {"name": "demo-r1"}, "spec": {"attempt": {"number": 3, "minimumVersion": "999.0.0"}}}

        def report_progress(self, progress: CheckpointProgress, *, is_last: bool = False) -> None:
            reports.append((progress, is_last))

    monkeypatch.setattr(drive_command, "CheckpointClient", Client)
    with pytest.raises(SpecError, match="WorkerTooOld"):
        drive_command.main(["--checkpoint", "demo-r1"])
    [(progress, is_last)] = reports
    assert is_last
    assert progress.attempt == 3
    assert progress.failure is not None
    assert (progress.failure.attempt, progress.failure.exit_code, progress.failure.reason) == (3, 2, "WorkerTooOld")
