"""`tokjob plan --checkpoint`: the first Pod of a run. It writes the plan, or proves that nothing is left to do."""

from __future__ import annotations

from importlib import metadata

from tokenization_worker.api.checkpoint import CheckpointPlan
from tokenization_worker.api.version_skew import read_checkpoint
from tokenization_worker.checkpoint.client import CheckpointClient
from tokenization_worker.checkpoint.reporter import failure_report
from tokenization_worker.cli.checkpoint_words import committed_report, leave_words
from tokenization_worker.cli.progress import PlainDisplay
from tokenization_worker.errors import SpecError, TokenizationError
from tokenization_worker.messages.extras import install_command
from tokenization_worker.planning.scattering import needed_bytes
from tokenization_worker.run.run import Options, PlanOnly, plan_without_workers
from tokenization_worker.run.run_plan import CompleteRun


def plan_checkpoint(name: str) -> int:
    """Plan what a checkpoint says and report it there; 0 when that is done."""
    client = CheckpointClient(name)
    version = metadata.version("tokenization")
    try:
        checkpoint = read_checkpoint(client.read(), version)
    except TokenizationError as error:
        leave_words(failure_report(error, 0))
        raise
    job, attempt = checkpoint.to_job(), checkpoint.spec.attempt
    slots = attempt.slots if attempt else None
    display = PlainDisplay()
    report = CheckpointPlan(worker_version=version, ray_version=_ray_version())
    try:
        planned = plan_without_workers(job, Options(processes=slots), _require_ray, display)
        changes = _describe(planned, slots or 1)
    except Exception as error:
        failure = failure_report(error, 0)
        leave_words(failure)
        client.report_plan(report.model_copy(update={"failure": failure}))
        raise
    try:
        client.report_plan(report.model_copy(update=changes))
        if planned.finished is not None:
            client.commit(committed_report(checkpoint.spec.run, job, planned.finished))
            display(planned.finished)
    except TokenizationError as error:  # it cannot be reported any other way
        leave_words(failure_report(error, 0))
        raise
    return 0


def _describe(planned: PlanOnly, slots: int) -> dict[str, object]:
    """What was found, as the checkpoint's status names it; of a complete run, what its index says."""
    found = planned.found
    if isinstance(found, CompleteRun):
        run = found.index["run"]
        return {"already_complete": True, "plan_id": run.get("planId"), "data_key": found.index["dataKey"]}
    seconds, rows = found.prepared.estimate.core_seconds(found.engine), found.prepared.estimate.rows
    return {
        "already_complete": planned.finished is not None,
        "plan_id": found.plan.plan_id,
        "data_key": found.plan.data_key,
        "files": len(found.plan.files),
        "bytes": found.prepared.stored_bytes,
        "ranges": found.plan.n_ranges,
        "estimated_tokens": found.prepared.estimate.tokens,
        "estimated_rows": None if rows is None else rows.count,
        "estimated_utilization": None if rows is None else f"{rows.utilization:.1%}",
        "task_bytes": needed_bytes(found.prepared, found.plan.scattering),
        "estimated_seconds": None if seconds is None else round(seconds / slots),
    }


def _require_ray() -> None:
    """Raise `SpecError` for an image in which no driver could run, before it gets machines."""
    if _ray_version() is None:
        raise SpecError(
            "ImageUnfit",
            f"the worker image has tokenization {metadata.version('tokenization')}, but not Ray",
            next_step=f"build an image that also has Ray: {install_command('ray')}",
        )


def _ray_version() -> str | None:
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        return None
