"""Jobs that run as long as they are there: KubeRay and nodes are the test bed's, plan and driver are played."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from support.cluster.jobs import Jobs, local_spec, wait_for
from tokenization_operator.objects.kinds import Kind
from tokenization_worker.api.types.times import time_text

HOLD = "testbed/worker:hold"


def hold(
    jobs: Jobs, name: str, folder: Path, *, last_range: timedelta = timedelta(), quarantined: int = 0, **more: Any
) -> None:
    """Apply a job and bring it to Running. `last_range`: when its driver completed one, from now; `more`: its spec."""
    jobs.apply(name, local_spec(folder / name, image=HOLD, maxQuarantined=10, **more))
    wait_for(lambda: f"{name}-r1" in jobs.names(Kind.CHECKPOINT), bool)
    plan = {"planId": "p", "dataKey": "d", "files": 1, "bytes": 99, "ranges": 4, "estimatedTokens": 4000}
    _report(jobs, name, plan=plan)
    jobs.wait_for_driver(name)
    moment = time_text(datetime.now(UTC) + last_range)
    counts = {"rangesTotal": 4, "rangesCompleted": 1, "percent": 25, "tokens": 1000, "documents": 100}
    _report(jobs, name, progress=counts | {"attempt": 1, "quarantined": quarantined, "lastRangeTime": moment})
    jobs.reach(name, "Running")


def _report(jobs: Jobs, name: str, **parts: Any) -> None:
    jobs.patch(Kind.CHECKPOINT, f"{name}-r1", parts, is_status=True)
