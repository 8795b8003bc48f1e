"""Every reason that the operator gives stands in the documentation, with what to do."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tokenization_operator
from support.places import CHECKOUT
from tokenization_worker.api.types.reasons import StatusReason

PACKAGE = Path(tokenization_operator.__file__).parent
DECIDING = [*(PACKAGE / "decide").glob("*.py"), PACKAGE / "observe" / "pod_diagnosis.py", PACKAGE / "reconciler.py"]
PERSISTED = """
AlreadyComplete AttemptStarted ChangedForNextAttempt ClusterRejected ClusterRequested CommitMissing Committed
DeadlineExceeded Finishing HeadLost ImageChanged ImagePullFailed KubeRaySilent KubeRayTooOld KubeRayUnavailable
MachinesReturned NameTaken NamespaceNotPrepared NotUnderstood PlanDeadline PlanLost PlanNotReported Planned Planning
PodInvalid Queued RayJobFailed RayJobGone RayJobStopped Rerun Resumed Retrying RunStarted Running SpecChanged Stalled
StartupDeadline Suspended Suspending TtlIgnored Unschedulable WaitingForDriver WaitingForWorkers WorkerMemory
"""


def constants(path: Path) -> list[ast.Constant]:
    return [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Constant)]


def test_reasons_are_those_that_statuses_of_earlier_versions_hold() -> None:
    assert sorted(StatusReason) == PERSISTED.split()


def test_every_reason_has_its_next_step() -> None:
    text = (CHECKOUT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert {reason for reason in StatusReason if f"`{reason}`" not in text} == set()


@pytest.mark.parametrize("path", DECIDING, ids=lambda path: path.stem)
def test_reasons_are_written_once_and_named_elsewhere(path: Path) -> None:
    """A literal that is misspelled, or renamed in one of two places, fails no check of types."""
    found = {str(node.value) for node in constants(path) if str(node.value) in set(StatusReason)}
    assert found <= {"DeadlineExceeded"}, "that one is also a reason of Kubernetes for a Job"
