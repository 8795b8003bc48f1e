"""Derives a status's times, the address of the dataset, and the printer columns from its other fields. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tokenization_operator.decide.status.printer_columns import make_display
from tokenization_operator.objects.reading import ENDS
from tokenization_operator.observe.observation import Observation
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.resolve import resolve_output_uri
from tokenization_worker.api.status import JobStatus, OutputStatus, Phase
from tokenization_worker.api.types.times import time_text

ENDED = (Phase.SUCCEEDED, Phase.FAILED)


def derive(observation: Observation, status: JobStatus) -> JobStatus:
    """The status with its derived fields."""
    changes: dict[str, Any] = {"observed_generation": observation.generation}
    if status.run is not None:
        changes["start_time"] = status.start_time or status.run.start_time
        changes["output"] = status.output or output_of(observation.job, status.run.rerun_token)
    changes["completion_time"] = _completion_time(observation.status, status, observation.now)
    if status.progress is not None and status.phase is not Phase.RUNNING:  # only a running job has a rate
        changes["progress"] = status.progress.model_copy(update={"tokens_per_second": None, "eta_seconds": None})
    changed = status.model_copy(update=changes)
    return changed.model_copy(update={"display": make_display(changed, observation.now)})


def output_of(job: TokenizationJob, rerun_token: str | None) -> OutputStatus:
    """The address of the dataset, as the worker computes it."""
    return OutputStatus(uri=resolve_output_uri(job.spec.output.uri, rerun_token))


def _completion_time(before: JobStatus, status: JobStatus, now: datetime) -> str | None:
    if status.phase not in ENDED:
        return None
    return end_of(before) if before.phase is status.phase else time_text(now)


def end_of(status: JobStatus) -> str | None:
    """When a finished job ended. An older operator recorded that only as the time of a condition."""
    found = (each for each in status.conditions or () if each.type in ENDS and each.status == "True")
    return status.completion_time or next((each.last_transition_time for each in found), None)
