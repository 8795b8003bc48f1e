"""Exports Prometheus metrics, including the age of the last reconcile. No metric costs a request to the API server.

Prometheus scrapes from its own thread, so collectors copy shared data before they read it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tokenization_operator.job_metrics import GAUGES, choose_jobs, count_phases, find_durations, name_of, sample_job
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.reading import Object
from tokenization_worker.api.status import JobStatus, Phase
from tokenization_worker.api.types.reasons import StatusReason

MOST_REASONS = 100
OUTCOMES = (str(Phase.SUCCEEDED), str(StatusReason.ALREADY_COMPLETE), str(Phase.FAILED))

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_OF_RUNS = (
    30,
    *(n * _MINUTE for n in (1, 5, 15, 30)),
    *(n * _HOUR for n in (1, 2, 4, 8, 16)),
    _DAY,
    2 * _DAY,
    7 * _DAY,
)
_OF_PLANS = (5, 10, 20, 30, _MINUTE, *(n * _MINUTE for n in (2, 5, 10, 30)), _HOUR)
_OF_STARTS = (10, 30, *(n * _MINUTE for n in (1, 2, 5, 10, 20, 30)), _HOUR, 2 * _HOUR)
_OF_JOB = ["job_namespace", "job_name"]
"""Not `namespace` and `job`: Prometheus sets those labels on every scraped series."""


class QueueStats(Protocol):
    @property
    def age_s(self) -> float: ...

    @property
    def waiting(self) -> int: ...


class JobCache(Protocol):
    def briefs(self) -> list[Object]: ...

    def get(self, kind: str, namespace: str, name: str) -> Object | None: ...


class Metrics:
    """All metrics of one operator."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._reasons: set[str] = set()
        self._moves = Counter(
            "tokenization_job_transitions",
            "Changes of a job's phase or reason.",
            ["phase", "reason"],
            registry=self.registry,
        )
        self._failures = Counter(
            "tokenization_reconcile_failures", "Reconciles that ended in an error.", registry=self.registry
        )
        self._depth = Gauge(
            "tokenization_queue_depth",
            "Jobs that are due for a reconcile and wait for a worker of the operator.",
            registry=self.registry,
        )
        self._leader = Gauge(
            "tokenization_leader",
            "1 for the active operator, 0 for one that waits for the Lease.",
            registry=self.registry,
        )
        self._age = Gauge(
            "tokenization_last_reconcile_age_seconds",
            "Since the last reconcile of any job; before the first one, since the operator started.",
            registry=self.registry,
        )
        began = clock()
        self._age.set_function(lambda: clock() - began)  # before the queue exists nothing is reconciled
        self._runs = Histogram(
            "tokenization_run_duration_seconds",
            "From the start of a run, or the end of its last wait in a queue or suspended, to its end.",
            ["outcome"],
            buckets=_OF_RUNS,
            registry=self.registry,
        )
        for outcome in OUTCOMES:  # a series that starts with its first event shows no rate for that event
            self._runs.labels(outcome=outcome)
        self._plans = Histogram(
            "tokenization_plan_duration_seconds",
            "From the creation of the Job that plans a run to its plan.",
            buckets=_OF_PLANS,
            registry=self.registry,
        )
        self._starts = Histogram(
            "tokenization_start_duration_seconds",
            "From when no queue holds an attempt to when its driver runs.",
            buckets=_OF_STARTS,
            registry=self.registry,
        )

    def moved(self, phase: Phase | None, reason: str | None) -> None:
        self._moves.labels(phase=str(phase), reason=self._known(reason or "")).inc()

    def _known(self, reason: str) -> str:
        """The reason, or "Other" after `MOST_REASONS`: Pods name reasons too, and each one is a time series."""
        if len(self._reasons) < MOST_REASONS:
            self._reasons.add(reason)
        return reason if reason in self._reasons else "Other"

    def wrote(self, before: JobStatus, after: JobStatus, now: datetime, plan_began: str | None) -> None:
        """Record a written status. `plan_began`: creation time of the Job that plans the run."""
        found = find_durations(before, after, now, plan_began)
        if found.run is not None:
            outcome = after.reason if after.reason in OUTCOMES else str(after.phase)
            self._runs.labels(outcome=outcome).observe(found.run)
        if found.plan is not None:
            self._plans.observe(found.plan)
        if found.start is not None:
            self._starts.observe(found.start)

    def failed(self) -> None:
        self._failures.inc()

    def watch(self, queue: QueueStats, known: JobCache, leads: Callable[[], bool] = lambda: True) -> None:
        """Export the queue and the cached jobs. Jobs are exported only while this operator `leads`, so that a sum over
        replicas counts each job once."""
        self._depth.set_function(lambda: float(queue.waiting))
        self._age.set_function(lambda: queue.age_s)
        self._leader.set_function(lambda: float(leads()))
        self.registry.register(_Jobs(known, leads))


class _Jobs(Collector):
    """Collects the cached jobs at each scrape."""

    def __init__(self, known: JobCache, leads: Callable[[], bool]) -> None:
        self._known = known
        self._leads = leads

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return ()  # otherwise registration collects everything once

    def collect(self) -> Iterable[GaugeMetricFamily]:
        if not self._leads():
            return
        jobs = self._known.briefs()
        phases = GaugeMetricFamily("tokenization_jobs", "Jobs by phase.", labels=["phase"])
        for phase, count in count_phases(jobs).items():
            phases.add_metric([phase], count)
        chosen = choose_jobs(jobs)
        left_out = "Jobs that have no series of their own: there are too many."
        yield phases
        yield GaugeMetricFamily("tokenization_jobs_left_out", left_out, value=len(jobs) - len(chosen))
        words = "1 for the phase of a job, with its reason."
        now = GaugeMetricFamily("tokenization_job_phase", words, labels=[*_OF_JOB, "phase", "reason"])
        gauges = {
            name: GaugeMetricFamily(f"tokenization_job_{name}", words, labels=_OF_JOB) for name, words in GAUGES.items()
        }
        whole = (self._known.get(Kind.JOB, *name_of(each)) for each in chosen)
        for each in (sample_job(job) for job in whole if job is not None):
            now.add_metric([each.namespace, each.name, each.phase, each.reason], 1)
            for name, value in each.values.items():
                gauges[name].add_metric([each.namespace, each.name], value)
        yield now
        yield from gauges.values()
