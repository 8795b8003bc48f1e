"""Plays the Pods of many jobs: every plan succeeds, every driver reports, and nothing is tokenized."""

from __future__ import annotations

import sys
import threading
import time
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from support.cluster.jobs import watch_kind
from tokenization_operator.objects.kinds import PLACES, Kind
from tokenization_worker.api.types.times import time_text

_MERGE = "application/merge-patch+json"
_AGAIN_S = 1.0
_NO_ANSWER = (ApiException, HTTPError)
RANGES = 1000


class Player:
    """Of one namespace. `interval_s`: between two reports of a driver; after so many `reports` its run is committed.

    `ranges`: of a plan; a driver completes one a report.
    """

    def __init__(
        self,
        api: client.ApiClient,
        namespace: str,
        interval_s: float,
        reports: int | None = None,
        *,
        ranges: int = RANGES,
    ) -> None:
        self._api = api
        self._custom: Any = client.CustomObjectsApi(api)
        self._namespace = namespace
        self.interval_s = interval_s
        self._reports = reports
        self._ranges = ranges
        self._runs: dict[str, dict[str, Any]] = {}  # of a checkpoint: `spec.run`
        self._next_report: dict[str, tuple[float, int]] = {}  # of a checkpoint: when, and how many ranges are done then
        self._attempts: dict[str, int] = {}
        self._lock = threading.Lock()  # of the reports that are due
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, args=(kind, take), daemon=True)
            for kind, take in ((Kind.CHECKPOINT, self._take_checkpoint), (Kind.RAY_JOB, self._take_ray_job))
        ]
        self._threads.append(threading.Thread(target=self._drive, daemon=True))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._ended.set()

    def finish(self) -> None:
        """Let every run commit with its next report."""
        self._reports, self.interval_s = 0, 1.0

    def _follow(self, kind: Kind, take: Any) -> None:
        while not self._ended.is_set():
            try:
                for event in watch_kind(self._api, self._namespace, kind, timeout_seconds=60):
                    if event["type"] in ("ADDED", "MODIFIED"):
                        take(event["object"])
            except _NO_ANSWER:  # a version that is too old, or an API server that ends: list again
                self._ended.wait(_AGAIN_S)

    def _take_checkpoint(self, found: dict[str, Any]) -> None:
        name, number = found["metadata"]["name"], found["spec"]["attempt"]["number"]
        self._attempts[name] = number
        self._runs[name] = found["spec"]["run"]
        if not number and "plan" not in (found.get("status") or {}):
            plan = {"planId": "p", "dataKey": "d", "files": 10, "bytes": 10**9, "ranges": self._ranges}
            self._report(name, {"plan": plan | {"estimatedTokens": 10**9}})

    def _take_ray_job(self, found: dict[str, Any]) -> None:
        checkpoint = found["metadata"]["name"].rpartition("-a")[0]
        is_running = (found.get("status") or {}).get("jobStatus") == "RUNNING"
        with self._lock:
            if not is_running or found["metadata"].get("deletionTimestamp"):
                self._next_report.pop(checkpoint, None)
            elif checkpoint not in self._next_report:
                self._next_report[checkpoint] = time.monotonic(), 1

    def _drive(self) -> None:
        while not self._ended.wait(0.05):
            now = time.monotonic()
            with self._lock:
                reports = list(self._next_report.items())
            for name, (due, done) in reports:
                if due > now:
                    continue
                try:
                    self._report(name, {"progress": self._progress(name, done)})
                    if self._reports is not None and done >= self._reports:
                        self._commit(name)
                except _NO_ANSWER as error:  # such as of an attempt that this has not heard of yet: it is said again
                    sys.stderr.write(f"{name}: {error}\n")
                    following = now + _AGAIN_S, done
                else:
                    following = due + self.interval_s, done + 1
                with self._lock:
                    if name in self._next_report:
                        self._next_report[name] = following

    def _commit(self, name: str) -> None:
        run = self._runs[name]
        proof = {"jobUid": run["jobUid"], "run": run["number"], "runKey": run["runKey"]}
        self._report(name, {"committed": proof | {"indexUri": "gs://tokens/x/index.json", "indexDigest": "0" * 64}})

    def _progress(self, name: str, done: int) -> dict[str, Any]:
        done = min(done, self._ranges)  # a driver reports until its RayJob is gone
        moment = time_text(datetime.now(UTC))
        return {
            "attempt": self._attempts[name],
            "stage": "Tokenize",
            "rangesTotal": self._ranges,
            "rangesCompleted": done,
            "completedThrough": done,
            "completedRanges": [{"start": 2 * number, "end": 2 * number + 1} for number in range(64)],
            "percent": done * 100 // self._ranges,
            "tokens": done * 10**6,
            "documents": done * 10**3,
            "quarantined": done // 10,
            "lastRangeTime": moment,
            "lastCheckpointTime": moment,
        }

    def _report(self, name: str, status: dict[str, Any]) -> None:
        place = PLACES[Kind.CHECKPOINT]
        try:
            self._custom.patch_namespaced_custom_object_status(
                place.group,
                place.version,
                self._namespace,
                place.plural,
                name,
                {"status": status},
                _content_type=_MERGE,
            )
        except ApiException as error:
            if error.status != 404:
                raise
