"""What Kopf calls: watches fill the cache and name jobs to look at. Nothing is decided here.

Only `kopf.on.event`: other handlers leave finalizers and annotations on the user's jobs.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import kopf
from kubernetes.aio import client, config

from tokenization_operator.cache import JOB_KIND, Cache, Key, job_of
from tokenization_operator.cluster import Cluster
from tokenization_operator.decide import Kind
from tokenization_operator.metrics import Metrics
from tokenization_operator.names import JOB_LABEL
from tokenization_operator.preflight import OWN_KINDS, find_missing
from tokenization_operator.reconciler import PODS, Reconciler
from tokenization_operator.settings import Settings
from tokenization_operator.workqueue import WorkQueue
from tokenization_worker.api.job import API_GROUP, API_VERSION
from tokenization_worker.errors import TokenizationError

log = logging.getLogger(__name__)

WORKERS = 16
_OURS = {JOB_LABEL: kopf.PRESENT}
_VERSION = API_VERSION.partition("/")[2]


class Operator:
    """The parts of a running operator, put together."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.cache = Cache()
        self.queue: WorkQueue[Key] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._api: client.ApiClient | None = None
        self.stop_flag = asyncio.Event()
        self.has_failed = False

    def register(self, registry: kopf.OperatorRegistry) -> None:
        """Add all handlers to Kopf's registry."""
        kopf.on.login(registry=registry)(_log_in)
        kopf.on.startup(registry=registry)(self._start)
        kopf.on.cleanup(registry=registry)(self._stop)
        for kind, place, labels in (
            (JOB_KIND, (API_GROUP, _VERSION, "tokenizationjobs"), None),
            (Kind.CHECKPOINT, (API_GROUP, _VERSION, "tokenizationcheckpoints"), None),
            (Kind.RAY_JOB, ("ray.io", "v1", "rayjobs"), _OURS),
            (Kind.PLAN_JOB, ("batch", "v1", "jobs"), _OURS),
            (PODS, ("", "v1", "pods"), _OURS),
        ):
            handler = self._handler(str(kind))
            kopf.on.event(*place, labels=labels, id=f"see-{kind}", registry=registry)(handler)

    def _handler(self, kind: str) -> Any:
        async def see(event: Any, **_: Any) -> None:
            item = dict(event["object"])
            if event["type"] == "DELETED":
                self.cache.drop(kind, item)
            else:
                self.cache.put(kind, item)
            metadata = item["metadata"]
            key = (metadata["namespace"], metadata["name"]) if kind == JOB_KIND else job_of(item)
            if key is not None and self.queue is not None:
                self.queue.add(key)

        return see

    async def _start(self, settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False  # its events are about handlers, not about jobs
        settings.scanning.disabled = True  # kinds do not come and go while it runs
        await config.load_config()
        self._api = client.ApiClient()
        missing = await find_missing(client.CustomObjectsApi(self._api), OWN_KINDS)
        if missing:  # it would have nothing to do, and Kopf would only warn
            self.has_failed = True
            raise kopf.PermanentError("; ".join(missing))
        reconciler = Reconciler(self.cache, Cluster(self._api), self.settings, self.metrics)
        self.queue = WorkQueue(reconciler.look, self._tell)
        self.metrics.watch(self.queue)
        self._tasks = [asyncio.create_task(self.queue.run(WORKERS)), asyncio.create_task(self._resync())]

    async def _stop(self, **_: Any) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._api is not None:
            await self._api.close()

    async def _resync(self) -> None:
        """Look at every job from time to time, whatever the watches say."""
        while True:
            await asyncio.sleep(self.settings.resync_s)
            for key in self.cache.jobs():
                if self.queue is not None:
                    self.queue.add(key)

    def _tell(self, key: Key, error: Exception) -> None:
        self.metrics.failed()
        known = isinstance(error, TokenizationError)
        log.error("look failed: %s", error, exc_info=None if known else error, extra={"job": "/".join(key)})


def _log_in(**known: Any) -> kopf.ConnectionInfo | None:
    """As the client library does: in a Pod by its ServiceAccount, elsewhere by the kubeconfig."""
    return kopf.login_via_client(**known)
