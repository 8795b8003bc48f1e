"""What Prometheus is told, and whether the operator is alive."""

from __future__ import annotations

from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge

from tokenization_worker.api.status import Phase

MOST_REASONS = 100


class Watched(Protocol):
    @property
    def age_s(self) -> float: ...

    def __len__(self) -> int: ...


class Metrics:
    """All metrics of one operator."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._reasons: set[str] = set()
        self._moves = Counter(
            "tokenization_job_transitions",
            "Changes of a job's phase or reason.",
            ["phase", "reason"],
            registry=self.registry,
        )
        self._failures = Counter(
            "tokenization_reconcile_failures", "Looks that ended in an error.", registry=self.registry
        )
        self._depth = Gauge("tokenization_queue_depth", "Jobs that wait to be looked at.", registry=self.registry)
        self._age = Gauge(
            "tokenization_last_reconcile_age_seconds", "Since the last look at any job.", registry=self.registry
        )

    def moved(self, phase: Phase | None, reason: str | None) -> None:
        self._moves.labels(phase=str(phase), reason=self._known(reason or "")).inc()

    def _known(self, reason: str) -> str:
        """Pods name reasons, too, and each is a time series: what comes after so many is one more."""
        if len(self._reasons) < MOST_REASONS:
            self._reasons.add(reason)
        return reason if reason in self._reasons else "Other"

    def failed(self) -> None:
        self._failures.inc()

    def watch(self, queue: Watched) -> None:
        self._depth.set_function(lambda: float(len(queue)))
        self._age.set_function(lambda: queue.age_s)
