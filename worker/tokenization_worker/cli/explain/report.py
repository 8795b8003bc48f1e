"""Builds the report on a job: status, events, Pods, log, next step. Decides; does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tokenization_worker.api.status import Phase
from tokenization_worker.api.types.reasons import StatusReason
from tokenization_worker.api.types.times import last_report_seen, read_time
from tokenization_worker.cli.explain.advice import FIND_OPERATOR, UNSEEN, JobView, advise, advise_as_said, split_step
from tokenization_worker.cli.explain.events import Fact, is_of_job, merge_events
from tokenization_worker.cli.explain.logs import Log
from tokenization_worker.cli.explain.pods import PodSummary, summarize_pod
from tokenization_worker.cli.numbers import short_bytes, short_count
from tokenization_worker.messages.counts import counted
from tokenization_worker.messages.redact import redact

Object = dict[str, Any]

_MOST_EVENTS = 10
_MOST_FAILURES = 3
_SILENT_S = 300.0
"""After this time without a report of a driver, which reports each minute, `explain` says so."""

_PLAIN: frozenset[str] = frozenset(
    {
        StatusReason.PLANNING,
        StatusReason.CLUSTER_REQUESTED,
        StatusReason.ATTEMPT_STARTED,
        StatusReason.WAITING_FOR_WORKERS,
        StatusReason.WAITING_FOR_DRIVER,
        Phase.STARTING,  # what an older operator gave as a reason, too
        StatusReason.RUNNING,
    }
)
"""Reasons that say nothing of what a Pod may say of itself."""

_BEGINS = _PLAIN - {StatusReason.RUNNING}
"""Reasons of a try that has done nothing yet."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What the API server has of a job at one moment, by its clock. `not_shown`: what could not be read, and why;
    `unread_log`: the same of the log of a Pod, or "". `has_kueue`: whether the cluster serves its kinds;
    `tpu_nodes`: accelerator and topology of each TPU node. None where that was not asked, or not answered."""

    job: Object
    now: datetime
    events: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    log: Log | None = None
    not_shown: tuple[str, ...] = ()
    unread_log: str = ""
    has_kueue: bool | None = None
    tpu_nodes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What a screen or a machine is shown; `facts`: a word and what the status says of it."""

    namespace: str
    name: str
    now: datetime
    created: datetime | None
    phase: str
    reason: str
    message: str
    facts: tuple[tuple[str, str], ...]
    events: tuple[Fact, ...]
    events_left_out: int
    pods: tuple[PodSummary, ...]
    log: Log | None
    not_shown: tuple[str, ...]
    unread_log: str
    next_step: str


def make_report(observed: Observed, most_events: int = _MOST_EVENTS) -> Report:
    """Put together what was read."""
    metadata, status = _block(observed.job, "metadata"), _block(observed.job, "status")
    created = read_time(metadata.get("creationTimestamp"))
    name, uid = str(metadata.get("name")), str(metadata.get("uid"))
    own = [event for event in observed.events if is_of_job(event, name, uid, created)]
    events, left_out = merge_events(own, most_events)
    pods = tuple(summarize_pod(pod, observed.now) for pod in observed.pods)
    return Report(
        namespace=str(metadata.get("namespace")),
        name=name,
        now=observed.now,
        created=created,
        phase=str(status.get("phase") or Phase.PENDING),
        reason=str(status.get("reason") or ""),
        message=redact(str(status.get("message") or "")),
        facts=tuple((word, redact(text)) for word, text in _facts(observed) if text),
        events=tuple(events),
        events_left_out=left_out,
        pods=pods,
        log=observed.log,
        not_shown=observed.not_shown,
        unread_log=observed.unread_log,
        next_step=redact(_next_step(observed, pods)),
    )


def is_observed(job: Object) -> bool:
    """Whether an operator has ever written the status: the API server fills in a phase by itself."""
    return bool(_block(job, "status").get("reason"))


def output_uri(job: Object) -> str:
    """Where the dataset is, or will be."""
    status = _block(job, "status")
    asked = str(_block(_block(job, "spec"), "output").get("uri") or "")
    return str(_block(status, "output").get("uri") or asked)


def age(moment: datetime | None, now: datetime) -> str:
    """`12s`, `4m`, `3h`, `2d`: as kubectl has it."""
    if moment is None:
        return "?"
    seconds = max(0, int((now - moment).total_seconds()))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _facts(observed: Observed) -> list[tuple[str, str]]:
    status = _block(observed.job, "status")
    return [
        ("run", _run(status, str(_block(observed.job, "spec").get("image") or ""))),
        ("plan", _plan(_block(status, "plan"))),
        (
            "progress",
            _progress(_block(status, "progress"), observed.now, is_moving=status.get("phase") == Phase.RUNNING),
        ),
        ("workers", _workers(_block(status, "workers"))),
        ("retries", _retries(_block(status, "failures"), observed.now)),
        *(("failed", _failure(each, observed.now)) for each in _unreported(status)),
        ("output", _output(observed.job)),
        ("log", str(_block(status, "attempt").get("logUri") or "")),
    ]


def _run(status: Object, asked_image: str) -> str:
    """`asked_image`: of the job; an attempt has the one with which it began."""
    run, attempt = _block(status, "run"), _block(status, "attempt")
    if not run:
        return ""
    token = f" (rerunToken {run['rerunToken']})" if run.get("rerunToken") else ""
    words = [f"{run.get('number')}{token}"]
    if attempt:
        words.append(f"attempt {attempt.get('number')}{' (ended)' if attempt.get('isOver') else ''}")
    image = attempt.get("image") or asked_image or run.get("image")
    return ", ".join([*words, *([f"image {image}"] if image else [])])


def _plan(plan: Object) -> str:
    if not plan:
        return ""
    tokens, rows = plan.get("estimatedTokens"), plan.get("estimatedRows")
    seconds, chips = plan.get("estimatedSeconds"), plan.get("chipHours")
    return ", ".join(
        (
            counted(plan.get("files") or 0, "file"),
            short_bytes(plan.get("bytes") or 0),
            counted(plan.get("ranges") or 0, "range"),
            *([f"~{short_count(tokens)} tokens"] if tokens is not None else []),
            *([f"~{short_count(rows)} rows"] if rows is not None else []),
            *([f"~{span(timedelta(seconds=seconds))}"] if seconds else []),
            *([f"{chips} chip hours"] if chips and chips.strip("0.") else []),
            *([f"cost {plan['estimatedCost']}"] if plan.get("estimatedCost") else []),
        )
    )


def _progress(progress: Object, now: datetime, *, is_moving: bool) -> str:
    if not progress or progress.get("rangesTotal") is None:
        return ""
    words = [
        f"{progress.get('percent') or 0}%",
        f"{progress.get('rangesCompleted') or 0:,} of {counted(progress['rangesTotal'], 'range')}",
        f"{short_count(progress.get('tokens') or 0)} tokens",
    ]
    if progress.get("windowsTotal"):
        windows = counted(progress["windowsTotal"], "window")
        words.append(f"{progress.get('windowsScattered') or 0:,} of {windows} scattered")
    if progress.get("quarantined"):
        words.append(f"{progress['quarantined']:,} quarantined")
    if is_moving and progress.get("tokensPerSecond") is not None:
        words.append(f"{short_count(progress['tokensPerSecond'])} tokens/s")
    if is_moving and progress.get("etaSeconds") is not None:
        words.append(f"{span(timedelta(seconds=progress['etaSeconds']))} left")
    reported = read_time(progress.get("lastCheckpointTime"))
    if reported is not None:
        words.append(f"reported {age(reported, now)} ago")
    return ", ".join(words)


def _workers(workers: Object) -> str:
    return f"{workers.get('ready') or 0} of {workers['desired']} ready" if workers.get("desired") else ""


def _retries(failures: Object, now: datetime) -> str:
    if not failures:
        return ""
    own, others = failures.get("application") or 0, failures.get("infrastructure") or 0
    words = [f"{own} after errors of the application, {others} after other failures"] if own or others else []
    at = read_time(failures.get("nextAttemptTime"))
    if at is not None and at > now:
        words.append(f"the next try begins in {span(at - now)}")
    return ", ".join(words)


def _unreported(status: Object) -> list[Object]:
    """The newest failures of which the status' own message says nothing, the oldest first."""
    newest_first = list(status.get("lastFailures") or ())
    if newest_first and _is_said(newest_first[0], status):
        del newest_first[0]
    return newest_first[:_MOST_FAILURES][::-1]


def _is_said(record: Object, status: Object) -> bool:
    """Whether the status' own message is about this failure."""
    return str(record.get("message") or "")[:200] in str(status.get("message") or "")


def _failure(record: Object, now: datetime) -> str:
    number = record.get("attempt")
    what = f"attempt {number}" if number else "plan"
    words = " ".join(str(record.get("message") or "").split())
    return f"{what}, {age(read_time(record.get('time')), now)} ago: {record.get('reason')}: {words}"


def _output(job: Object) -> str:
    output = _block(_block(job, "status"), "output")
    words = [output_uri(job)]
    if output.get("tokens"):
        words.append(f"{short_count(output['tokens'])} tokens")
    return ", ".join(words)


def span(duration: timedelta) -> str:
    """A duration, in the largest units that say enough."""
    seconds = int(duration.total_seconds())
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _next_step(observed: Observed, pods: tuple[PodSummary, ...]) -> str:
    metadata, status = _block(observed.job, "metadata"), _block(observed.job, "status")
    names = {"job": str(metadata.get("name")), "namespace": str(metadata.get("namespace"))}
    if metadata.get("deletionTimestamp"):
        holders = ", ".join(metadata.get("finalizers") or ())
        return "The job is being deleted." + (f" It waits for its finalizers: {holders}." if holders else "")
    if not is_observed(observed.job):
        return UNSEEN.format(**names)
    phase, reason = str(status["phase"]), str(status.get("reason") or "")
    trouble = next((summary.reason for summary in pods if summary.reason), "")
    if trouble and reason in _PLAIN:
        reason = trouble
    reason = reason if phase != Phase.SUSPENDED else StatusReason.SUSPENDED
    said = split_step(str(status.get("message") or ""))[1]
    at = _job_view(observed)
    step = advise_as_said(said, reason, at) if said else advise(reason, at)
    return " ".join([*_staleness(observed), _after_failures(status, reason, at) or step])


def _after_failures(status: Object, reason: str, at: JobView) -> str:
    """Of an attempt that begins after others have failed: why they did, which is more than that it begins."""
    failures = list(status.get("lastFailures") or ())
    if reason not in _BEGINS or not failures:
        return ""
    last = str(failures[0].get("reason"))
    same = sum(1 for each in failures if each.get("reason") == last)
    number = _block(status, "attempt").get("number")
    what = f"Attempt {number} begins" if number else "The next try begins"
    so_far = f"the last {same} tries ended with {last}" if same > 1 else f"the last try ended with {last}"
    return f"{what}; {so_far}. {advise(last, at)}"


def _job_view(observed: Observed) -> JobView:
    job = observed.job
    metadata, spec, status = (_block(job, name) for name in ("metadata", "spec", "status"))
    workers = _block(spec, "workers")
    replicas, tpu = workers.get("replicas"), _block(workers, "tpu")
    stall_s = spec.get("stallTimeoutSeconds")
    return JobView(
        job=str(metadata.get("name")),
        namespace=str(metadata.get("namespace")),
        output=output_uri(job),
        phase=str(status.get("phase") or ""),
        is_planned=bool(status.get("plan")),
        asked_tpu=f"{tpu.get('accelerator')} {tpu.get('topology')}" if tpu else "",
        offered_tpus=observed.tpu_nodes,
        stall_timeout_s=stall_s if isinstance(stall_s, int) else None,
        replicas=replicas if isinstance(replicas, int) else 1,
        has_kueue=observed.has_kueue,
    )


def _staleness(observed: Observed) -> list[str]:
    """What says that the status may be old."""
    metadata, status = _block(observed.job, "metadata"), _block(observed.job, "status")
    found = []
    generation, processed = metadata.get("generation"), status.get("observedGeneration")
    if isinstance(generation, int) and isinstance(processed, int) and processed < generation:
        found.append(
            "The operator has not processed the last change of the job yet; if this lasts for a minute, check the "
            f"operator: {FIND_OPERATOR}."
        )
    progress, seen_at = _block(status, "progress"), _block(status, "attempt").get("progressTime")
    reported = last_report_seen(seen_at, progress.get("lastRangeTime"), progress.get("lastCheckpointTime"))
    if (
        status.get("phase") == Phase.RUNNING
        and reported is not None
        and (observed.now - reported).total_seconds() > _SILENT_S
    ):
        found.append(
            f"The driver's last report in the status is {age(reported, observed.now)} old: the driver hangs (see its "
            f"log), or the operator is down: {FIND_OPERATOR}."
        )
    return found


def _block(item: Mapping[str, Any], name: str) -> Object:
    found = item.get(name)
    return found if isinstance(found, dict) else {}
