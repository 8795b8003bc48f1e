"""A checkpoint that is in no cluster."""

from __future__ import annotations

from typing import Any

from tokenization_worker.api.checkpoint import CheckpointPlan, Committed


class Checkpoint:
    """Stands for the client: one checkpoint, and what is reported to it."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found
        self.plans: list[CheckpointPlan] = []
        self.committed: list[Committed] = []

    def read(self) -> dict[str, Any]:
        return self.found

    def report_plan(self, report: CheckpointPlan) -> None:
        self.plans.append(report)

    def commit(self, report: Committed) -> None:
        self.committed.append(report)
