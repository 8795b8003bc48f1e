"""`tokjob plan --checkpoint`: the first Pod of a run. It writes the plan, or proves that nothing is left to do."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from importlib import metadata

from tokenization_worker.api.checkpoint import CheckpointPlan, FailureReport
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.api.version_skew import read_checkpoint
from tokenization_worker.checkpoint.client import CheckpointClient
from tokenization_worker.checkpoint.reporter import failure_report
from tokenization_worker.cli.checkpoint_words import committed_report, leave_words
from tokenization_worker.cli.progress import PlainDisplay
from tokenization_worker.engine.executor import Executor
from tokenization_worker.errors import SpecError, TokenizationError
from tokenization_worker.events import Event, Finished, Planned
from tokenization_worker.messages.extras import install_command
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.planning.prepare import Prepared
from tokenization_worker.run.output_state import read_plan
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.storage.open import open_store


class _NeedsWorkers(BaseException):
    """There is work to do, and a plan for it; no error, so none that anybody on the way takes for one."""


def plan_checkpoint(name: str) -> int:
    """Plan what a checkpoint says and report it there; 0 when that is done."""
    client = CheckpointClient(name)
    version = metadata.version("tokenization")
    try:
        checkpoint = read_checkpoint(client.read(), version)
    except TokenizationError as error:
        leave_words(_failure(error))
        raise
    job, attempt = checkpoint.to_job(), checkpoint.spec.attempt
    display = PlainDisplay()
    planned: list[Planned] = []

    def watch(event: Event) -> None:
        if isinstance(event, Planned):
            planned.append(event)
        display(event)

    report = CheckpointPlan(worker_version=version, ray_version=_ray_version())
    try:
        finished = _plan(job, Options(processes=attempt.slots if attempt else None), watch)
        changes = _found(job, finished, planned, attempt.slots if attempt else None)
    except Exception as error:  # reported, and raised again
        failure = _failure(error)
        leave_words(failure)
        client.report_plan(report.model_copy(update={"failure": failure}))
        raise
    try:
        client.report_plan(report.model_copy(update=changes))
        if finished is not None:
            client.commit(committed_report(checkpoint.spec.run, job, finished))
            display(finished)
    except TokenizationError as error:  # it cannot be reported any other way
        leave_words(_failure(error))
        raise
    return 0


def _plan(job: TokenizationJob, how: Options, watch: Callable[[Event], None]) -> Finished | None:
    """Write the plan; what there is where nothing is left to do."""
    try:
        return run_job(job, options=how, executor=_refuse, on_progress=watch)
    except _NeedsWorkers:
        return None


def _found(
    job: TokenizationJob, finished: Finished | None, planned: list[Planned], slots: int | None
) -> dict[str, object]:
    """What the plan has found, as the checkpoint's status names it."""
    changes: dict[str, object] = {"already_complete": finished is not None}
    plan = read_plan(open_store(resolve_data(job).output.uri))
    if plan is not None:
        changes |= {"plan_id": plan.plan_id, "data_key": plan.data_key}
    if planned:
        changes |= {
            "files": planned[0].files,
            "bytes": planned[0].stored_bytes,
            "ranges": planned[0].ranges,
            "estimated_tokens": planned[0].estimated_tokens,
            "estimated_seconds": _seconds(planned[0], slots or 1),
        }
    return changes


def _seconds(planned: Planned, slots: int) -> int | None:
    return None if planned.core_seconds is None else round(planned.core_seconds / slots)


def _failure(error: Exception) -> FailureReport:
    return failure_report(error, 0).model_copy(update={"pod": os.environ.get("HOSTNAME") or socket.gethostname()})


def _refuse(prepared: Prepared, context: RunContext) -> Executor:
    """Instead of an executor. Raises, before it gets machines, what the run would end with.

    And `SpecError` for an image that no driver could run in.
    """
    if prepared.foreseen is not None:
        raise prepared.foreseen
    if _ray_version() is None:
        raise SpecError(
            "ImageUnfit",
            f"the worker image has no Ray beside tokenization {metadata.version('tokenization')}",
            next_step=f"build an image that also has Ray: {install_command('ray')}",
        )
    raise _NeedsWorkers


def _ray_version() -> str | None:
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        return None
