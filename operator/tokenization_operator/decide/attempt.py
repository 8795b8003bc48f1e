"""The attempts of a planned run, one RayJob each: create, follow, give up. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tokenization_operator.build.children import Attempt, build_head_budget, build_ray_job, build_trials
from tokenization_operator.build.sizes import requests_of_worker
from tokenization_operator.decide.actions import Action, Create, Decision
from tokenization_operator.decide.context import AT_ONCE_S, Context
from tokenization_operator.decide.cost import machines_of
from tokenization_operator.decide.failure import failure_of_ray_job
from tokenization_operator.decide.pending import pending_changes
from tokenization_operator.decide.retry_policy import Blame, Failure
from tokenization_operator.decide.starting import (
    ActiveAttempt,
    decide_start,
    has_begun,
    memory_words,
    restart_attempt,
    startup_failure,
    task_bytes_of,
    was_changed,
)
from tokenization_operator.decide.status.printer_columns import stage_words
from tokenization_operator.decide.status.truncate import join
from tokenization_operator.decide.termination import fail, progress_of, with_log
from tokenization_operator.objects import names
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.reading import Object
from tokenization_operator.observe.observation import KubeRay
from tokenization_operator.observe.rayjob_status import (
    Stage,
    cluster_name,
    count_ready_workers,
    find_head,
    read_ray_job,
)
from tokenization_worker.api.checkpoint import report_interval_s
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import attempt_digest, pods_digest
from tokenization_worker.api.status import AttemptStatus, Phase, ProgressStatus, WorkersStatus
from tokenization_worker.api.types.reasons import StatusReason
from tokenization_worker.api.types.times import seconds_since, time_text
from tokenization_worker.api.workers import TpuShare

_ITS_CLUSTER = dict.fromkeys(("head_pod", "admitted_time", "running_time", "progress_time"))
"""What an attempt knows of the cluster that it has, and forgets when that is taken away."""

TOKEN_S = 3600.0
"""The lifetime of a Pod's token. The kubelet renews it after 80 % of that."""


def decide_attempt(context: Context) -> Decision:
    """The next step of a planned run that may use machines."""
    attempt = context.before.attempt
    if attempt is None or attempt.is_over:
        return _begin_attempt(context)
    job = context.observation.ray_job
    if job is not None:
        return _follow(context, attempt, job)
    if context.observation.kuberay is not KubeRay.AVAILABLE:  # without the kind there are no RayJobs
        return _without_kuberay(context)
    if attempt.ray_job_name is None:
        if was_changed(context, attempt):
            return restart_attempt(context, attempt, None)
        state = f"no RayJob. {context.before.message}"
        return _too_late(context, attempt, state) or _make_ray_job(context, attempt)
    words = f"RayJob {attempt.ray_job_name} was deleted"
    return fail(context, Failure(attempt.number, StatusReason.RAY_JOB_GONE, words, Blame.INFRASTRUCTURE))


def _begin_attempt(context: Context) -> Decision:
    """The first step of an attempt: write its number to the status."""
    if context.has_children(but_plan=True):
        return context.wait_for_end(*context.why_it_waits())
    if (pause := context.pause()) is not None:
        return pause
    if context.observation.kuberay is not KubeRay.AVAILABLE:
        return _without_kuberay(context)
    if not context.observation.has_service_account:
        return context.not_prepared(Phase.STARTING)
    if (words := memory_words(context)) is not None:
        return context.at(Phase.PENDING, StatusReason.WORKER_MEMORY, words)
    last = context.before.attempt
    new = AttemptStatus(
        number=(last.number if last else 0) + 1,
        start_time=time_text(context.observation.now),
        replicas=(last.next_replicas if last else None) or context.job.spec.workers.replicas,
        image=context.image.name,
        spec_digest=pods_digest(context.observation.job),
    )
    new = new.model_copy(update={"machines": machines_of(context.job, new.replicas or 1)})
    run = context.run.model_copy(update={"spec_digest": attempt_digest(context.observation.job)})
    words = f"attempt {new.number} begins"
    return context.at(
        Phase.STARTING, StatusReason.ATTEMPT_STARTED, words, attempt=new, run=run, requeue_after_s=AT_ONCE_S
    )


def _without_kuberay(context: Context) -> Decision:
    if context.observation.kuberay is KubeRay.MISSING:
        words = "the cluster does not serve RayJobs: install KubeRay 1.6 or newer"
        return context.at(Phase.PENDING, StatusReason.KUBERAY_UNAVAILABLE, words)
    return context.at(
        Phase.PENDING,
        StatusReason.KUBERAY_TOO_OLD,
        "KubeRay's RayJobs have no authOptions, so its dashboards would be open to all: upgrade its "
        "CustomResourceDefinitions to 1.6 or newer",
    )


def _make_ray_job(context: Context, attempt: AttemptStatus) -> Decision:
    made = _made(context, attempt)
    body = build_ray_job(context.job, context.observation.uid, made, context.run.ray_version, context.settings)
    trials = build_trials(context.job, context.observation.uid, made, context.settings)
    words = join(f"RayJob {body['metadata']['name']}", *_idle_host_words(context.job))
    return context.making(
        Phase.STARTING,
        StatusReason.CLUSTER_REQUESTED,
        words,
        context.update_checkpoint(made, None),
        Create(Kind.RAY_JOB, body, trials),
    )


def _idle_host_words(job: TokenizationJob) -> tuple[str, ...]:
    """What the workers leave unused of TPU hosts that they have to themselves, if the job does not say how much they
    use."""
    workers = job.spec.workers
    is_exclusive = workers.tpu is not None and workers.tpu.share is TpuShare.EXCLUSIVE
    if not is_exclusive or "cpu" in (workers.resources.requests or {}):
        return ()
    requests = requests_of_worker(job)
    words = f"Each worker reserves a whole TPU host, and uses {requests['cpu']} CPUs and {requests['memory']} of it"
    return (f"{words}: to use more, set workers.resources.requests",)


def _made(context: Context, attempt: AttemptStatus) -> Attempt:
    replicas, needed = attempt.replicas or 1, task_bytes_of(context)
    return Attempt(context.run.number, attempt.number, context.image, replicas, needed)


def _follow(context: Context, attempt: AttemptStatus, job: Object) -> Decision:
    """The next step of an attempt whose RayJob exists."""
    state = read_ray_job(job)
    cluster = cluster_name(job)
    if state.stage is Stage.QUEUED or (cluster is not None and attempt.ray_cluster_name not in (None, cluster)):
        attempt = attempt.model_copy(update=_ITS_CLUSTER)  # it was suspended, or is, and gets another cluster
    changes: dict[str, Any] = {"ray_job_name": job["metadata"]["name"], "ray_cluster_name": cluster}
    if (
        attempt.head_pod is None
        and state.stage is Stage.RUNNING
        and (head := find_head(context.observation.pods)) is not None
    ):
        changes["head_pod"] = head["metadata"]["name"]
    if context.is_account_back:
        changes["account_time"] = time_text(context.observation.now)
    changes["pending_changes"] = pending_changes(context, attempt, job)
    progress = progress_of(context, attempt)
    clocks = _clocks(context, attempt, state.stage, progress)
    attempt = with_log(context, attempt.model_copy(update=changes | clocks))
    desired = (attempt.replicas or 1) * context.hosts_of_replica
    workers = WorkersStatus(desired=desired, ready=count_ready_workers(context.observation.pods))
    active = ActiveAttempt(attempt, job, state, workers, progress)
    grace_s = context.settings.commit_grace_s
    failure = failure_of_ray_job(state, attempt, context.observation, context.waited_s(StatusReason.FINISHING), grace_s)
    if failure is not None:
        return fail(context, failure, **active.changes)
    if not has_begun(context, attempt) and was_changed(context, attempt):
        return restart_attempt(context, attempt, job)
    if state.stage is Stage.QUEUED:
        return context.queued(job, **active.changes)
    if state.stage is Stage.ENDED:
        words = "the driver has ended; the operator waits for its last report"
        return context.at(
            Phase.RUNNING,
            StatusReason.FINISHING,
            words,
            **active.changes,
            **context.patience(StatusReason.FINISHING, grace_s),
        )
    return _attend(context, active)


def _attend(context: Context, active: ActiveAttempt) -> Decision:
    """The next step of an attempt that has machines or waits for them."""
    left_s = seconds_to_stall(context, active) if active.state.stage is Stage.RUNNING else None
    if left_s is not None and left_s <= 0:
        return fail(context, _stalled(context, active), **active.changes)
    decision = _running(context, active) if has_begun(context, active.attempt) else decide_start(context, active)
    if decision.status.attempt is None or decision.status.attempt.is_over:
        return decision
    due = [each for each in (decision.requeue_after_s, left_s) if each is not None]
    return replace(decision, actions=_meet_cluster(context, active), requeue_after_s=min(due, default=None))


def _running(context: Context, active: ActiveAttempt) -> Decision:
    """The status of an attempt whose driver works."""
    reason, words = StatusReason.RUNNING, stage_words(active.progress)
    diagnosis = active.diagnosis(context.observation)
    if not context.observation.has_service_account:
        reason = StatusReason.NAMESPACE_NOT_PREPARED
        words = f"{words}, as last reported. {context.missing_account_message(active.account)}"
    elif diagnosis is not None and diagnosis.reason is StatusReason.WORKER_MEMORY:
        reason, words = diagnosis.reason, join(words, diagnosis.message)
    if active.attempt.pending_changes is not None:
        words += f"; {active.attempt.pending_changes}"
    return context.at(Phase.RUNNING, reason, words, **active.changes)


def _clocks(
    context: Context, attempt: AttemptStatus, stage: Stage, progress: ProgressStatus | None
) -> dict[str, str | None]:
    """Since when the attempt may have machines, since when its driver works, and when the driver last progressed."""
    now = time_text(context.observation.now)
    if stage is Stage.QUEUED:
        return {}
    running = attempt.running_time or (now if stage is Stage.RUNNING else None)
    # Counts from the driver's start, or from now if an older operator followed the driver without this field.
    still = attempt.progress_time or (now if running else None)
    return {
        "admitted_time": attempt.admitted_time or now,
        "running_time": running,
        "progress_time": now if _gets_on(context, progress) else still,
    }


def _gets_on(context: Context, progress: ProgressStatus | None) -> bool:
    """Whether the driver has reported progress. Its timestamps are compared only with each other: its node's clock may
    be hours off. After its ServiceAccount returns, a driver that could not report gets its full time again."""
    if context.is_account_back:
        return True
    before = context.before.progress or ProgressStatus()
    if progress is None or progress is context.before.progress:
        return False
    counts = [
        (each.ranges_completed or 0, each.windows_scattered or 0, each.shards_built or 0) for each in (before, progress)
    ]
    return counts[0] != counts[1] or progress.last_range_time not in (None, before.last_range_time)


def _meet_cluster(context: Context, active: ActiveAttempt) -> tuple[Action, ...]:
    """Protect the head of a new RayCluster from drains, and name it as the checkpoint's writer.

    The checkpoint is last: it says that both are done.
    """
    cluster = active.attempt.ray_cluster_name
    if cluster is None:
        return ()
    prefix = names.head_pod_prefix(cluster)
    spec = (context.observation.checkpoint or {}).get("spec") or {}
    if spec.get("writerPodPrefix") == prefix:
        return ()
    made = _made(context, active.attempt)
    writer = replace(made, image=replace(made.image, service_account=active.account))
    update = context.update_checkpoint(writer, prefix)
    if not context.settings.job_pods.head.disruption_budget:
        return (update,)
    budget = build_head_budget(context.job, made, active.job)
    return Create(Kind.DISRUPTION_BUDGET, budget, is_optional=True), update


def seconds_to_stall(context: Context, active: ActiveAttempt) -> float | None:
    """Seconds until a driver without progress counts as hung; None while it cannot report at all.

    After its ServiceAccount was deleted and recreated, the old tokens are invalid until the kubelet renews them.
    """
    if not context.observation.has_service_account:
        return None
    lasted = seconds_since(active.attempt.running_time, context.observation.now) or 0.0
    since_last = seconds_since(active.attempt.progress_time, context.observation.now)
    still = lasted if since_last is None else min(lasted, since_last)
    late = report_interval_s(lasted)  # reports arrive that much later
    left_s = context.job.spec.stall_timeout_seconds + late - still
    since_return = seconds_since(active.attempt.account_time, context.observation.now)
    has_reported = since_last is not None and since_return is not None and since_last < since_return
    if since_return is None or has_reported:  # a report since then proves a valid token
        return left_s
    return max(left_s, TOKEN_S - since_return)


def _stalled(context: Context, active: ActiveAttempt) -> Failure:
    last, began = active.attempt.progress_time, active.attempt.running_time
    known = f"none since the driver began at {began}" if last in (None, began) else f"the last was reported at {last}"
    words = f"no new range for {context.job.spec.stall_timeout_seconds} s; {known}"
    return Failure(active.attempt.number, StatusReason.STALLED, words, Blame.INFRASTRUCTURE)


def _too_late(context: Context, attempt: AttemptStatus, state: str) -> Decision | None:
    failure = startup_failure(context, attempt, state)
    return None if failure is None else fail(context, failure)
