"""Handlers for Kopf and the operator's background tasks: watches fill the cache and enqueue jobs. Decides nothing.

Uses only `kopf.on.event`: other handlers write finalizers and annotations to users' jobs.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import aiohttp
import kopf
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException

from tokenization_operator.informer.cache import Cache, Key, job_of
from tokenization_operator.informer.no_persistence import keep_nothing
from tokenization_operator.informer.patient_watch import patient_session
from tokenization_operator.informer.resync import Versions, drop_deleted, fill, labels_of
from tokenization_operator.informer.schedule import due_in_round, initial_reconciles
from tokenization_operator.informer.work_queue import NotReconciled, WorkQueue
from tokenization_operator.kube.api_errors import describe_error
from tokenization_operator.kube.client import Forbidden, KubeClient
from tokenization_operator.kube.election import Election
from tokenization_operator.kube.fence import Fence, NotLeading
from tokenization_operator.kube.preflight import KUBERAY, OWN_KINDS, find_missing
from tokenization_operator.kube.server_clock import ServerClock, TimedClient
from tokenization_operator.metrics import Metrics
from tokenization_operator.objects.kinds import PLACES, WATCHED, Kind
from tokenization_operator.reconciler import Reconciler
from tokenization_operator.settings import LeaseSettings, Settings
from tokenization_worker.errors import TokenizationError

log = logging.getLogger(__name__)

T = TypeVar("T")

WORKERS = 16
COMPARE_S = 300.0
"""How often the cache is compared with a list: a watch that reconnects reports no deletion."""

NO_CLUSTER = "no cluster is known: run in a Pod, or set KUBECONFIG"
_START_S = 2.0
_END_S = 10.0
"""When a watch ends for good, another may wait for ever for a session that Kopf has closed; then Kopf kills the
process."""


class Operator:
    """Assembles a running operator from cache, queue, reconciler and election."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self.settings = settings
        self.metrics = metrics
        self.cache = Cache()
        self.queue: WorkQueue[Key] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._api: client.ApiClient | None = None
        self.stop_flag = asyncio.Event()
        self.has_failed = False
        self._needs_kuberay = False
        self._kinds: tuple[Kind, ...] = ()
        self._listed: Versions = {}
        self._kube: KubeClient | None = None
        self._reconciler: Reconciler | None = None
        self._fence = Fence()
        self._clock = ServerClock()
        self._election: Election | None = None

    def register(self, registry: kopf.OperatorRegistry) -> None:
        """Add all handlers to Kopf's registry."""
        kopf.on.login(registry=registry)(self._log_in)
        kopf.on.startup(registry=registry)(self._start)
        kopf.on.cleanup(registry=registry)(self._stop)
        kopf.on.probe(registry=registry, id="lastReconcileAgeSeconds")(self._age_s)
        for kind in WATCHED:
            kopf.on.event(*PLACES[kind], id=f"see-{kind}", registry=registry)(self._handler(kind))

    def _handler(self, kind: Kind) -> Any:
        async def on_event(event: Any, **_: Any) -> None:
            item = dict(event["object"])
            if event["type"] == "DELETED":
                self.cache.drop(kind, item)
            elif not self.cache.put(kind, item):
                return  # the cache has this version: this operator wrote it
            metadata = item["metadata"]
            key = (metadata["namespace"], metadata["name"]) if kind is Kind.JOB else job_of(item)
            if key is not None and self.queue is not None:
                self.queue.notice(key)

        return on_event

    async def _start(self, settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False  # Kopf's events describe handlers, not jobs
        settings.process.ultimate_exiting_timeout = _END_S
        select(settings)
        settings.scanning.disabled = True  # scanning needs rights to all kinds; `_resync` checks for KubeRay
        try:
            await config.load_config()
        except config.ConfigException as error:
            raise self._failed(f"{NO_CLUSTER}: {error}") from error
        self._api = TimedClient(self._clock)
        kube = KubeClient(self._api, fence=self._fence)
        try:
            missing = await find_missing(self._api, OWN_KINDS)
            if missing:  # Kopf would only warn and idle
                raise self._failed("; ".join(missing))
            self._needs_kuberay = bool(await find_missing(self._api, KUBERAY))
            self._kinds = tuple(kind for kind in WATCHED if not (kind is Kind.RAY_JOB and self._needs_kuberay))
            await fill(self.cache, kube, self._kinds, self.settings.namespaces, self._listed)
        except Forbidden as error:
            raise self._failed(str(error)) from error
        except (ApiException, aiohttp.ClientError, TimeoutError) as error:
            await self._api.close()
            raise kopf.TemporaryError(
                f"the API server does not answer: {describe_error(error)}", delay=_START_S
            ) from error
        self._kube = kube
        self._reconciler = Reconciler(self.cache, kube, self.settings, self.metrics, self._clock.now)
        self.queue = WorkQueue(self._reconcile, self._log_failure)
        self.metrics.watch(self.queue, self.cache, lambda: self._fence.is_open)
        if self.settings.lease is not None:
            self._take_part(self.settings.lease)
        self._enqueue_all()
        work = (self.queue.run(WORKERS), self._resync(), self._poll_accounts())
        self._tasks = [asyncio.create_task(each) for each in work]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def _take_part(self, lease: LeaseSettings) -> None:
        """Reconcile only while this operator holds the Lease; keep the cache current meanwhile."""
        self._fence.close()
        loop = asyncio.get_running_loop()
        self._election = Election(
            lease,
            self._fence,
            on_change=lambda leads: _call_in_loop(loop, self._lead, leads),
            on_end=lambda error: _call_in_loop(loop, self._end, error),
        )
        self._election.start()
        log.info("this operator waits until it holds the Lease %s/%s", lease.namespace, lease.name)

    def _lead(self, leads: bool) -> None:
        if leads:
            log.info("this operator holds the Lease, and reconciles jobs")
            self._enqueue_all()
        else:
            log.warning("this operator has lost the Lease, and waits for it")

    def _enqueue_all(self) -> None:
        assert self.queue is not None
        for key, delay_s in initial_reconciles(self.cache, self.settings.ray_job_retention_s, self._clock.now()):
            self.queue.add(key, delay_s)

    async def _reconcile(self, key: Key) -> float | None:
        assert self._reconciler is not None
        if not self._fence.is_open:
            raise NotReconciled
        try:
            return await self._reconciler.reconcile(key)
        except NotLeading as error:
            raise NotReconciled from error

    def _ended(self, task: asyncio.Task[None]) -> None:
        """End the operator when one of its tasks ends: otherwise it would answer probes and do nothing."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._end(error)

    def _end(self, error: BaseException) -> None:
        log.critical("the operator ends: %s", describe_error(error), exc_info=error)
        self.has_failed = True
        self.stop_flag.set()

    def _failed(self, words: str) -> kopf.PermanentError:
        self.has_failed = True
        return kopf.PermanentError(words)

    async def _stop(self, **_: Any) -> None:
        self.stop_flag.set()  # otherwise Kopf waits 5 s for a task that waits for this flag
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._election is not None:
            await asyncio.to_thread(self._election.release)
        if self._api is not None:
            await self._api.close()

    async def _resync(self) -> None:
        """Enqueue every job periodically, independent of the watches and even if the API server does not answer."""
        assert self.queue is not None
        assert self._kube is not None
        next_comparison_at = time.monotonic()
        for number in itertools.count():
            await asyncio.sleep(self.settings.resync_s)
            keys = due_in_round(self.cache, number)  # read before the comparison, so deleted jobs are included
            try:
                if time.monotonic() >= next_comparison_at:
                    await drop_deleted(self.cache, self._kube, self._kinds, self.settings.namespaces)
                    next_comparison_at = time.monotonic() + COMPARE_S
                if self._needs_kuberay and not await find_missing(self._api, KUBERAY):
                    log.warning("KubeRay is installed now: the operator restarts, to watch its RayJobs")
                    self.stop_flag.set()
                    return
            except (Forbidden, ApiException, aiohttp.ClientError, TimeoutError) as error:
                log.warning(
                    "cannot check for KubeRay; the operator checks again in %.0f s: %s",
                    self.settings.resync_s,
                    describe_error(error),
                )
            for key in keys:
                self.queue.add(key)
            if not keys and self._fence.is_open:
                self.queue.rest()

    async def _poll_accounts(self) -> None:
        """Enqueue the jobs of a namespace when a ServiceAccount in use appears or disappears."""
        assert self.queue is not None
        assert self._kube is not None
        while True:
            await asyncio.sleep(self._kube.accounts.pause_s)
            changed, failed = await self._kube.accounts.find_changes()
            if failed is not None:
                log.warning("cannot read a ServiceAccount; the operator reads it again: %s", describe_error(failed))
            for key in self.cache.jobs():
                if key[0] in changed:
                    self.queue.add(key)

    async def _log_in(self, **known: Any) -> kopf.AiohttpSession | None:
        """Authenticate as the client library does: in a Pod by its ServiceAccount, elsewhere by the kubeconfig."""
        found = kopf.login_via_client(**known)
        return None if found is None else patient_session(found, self._listed)

    async def _age_s(self, **_: Any) -> float:
        """Seconds since the last reconcile: a probe that only answers does not show that jobs are reconciled."""
        return 0.0 if self.queue is None else self.queue.age_s

    def _log_failure(self, key: Key, error: Exception) -> None:
        self.metrics.failed()
        known = isinstance(error, (TokenizationError, ApiException, aiohttp.ClientError, TimeoutError))
        job = "/".join(key)
        log.error(
            "reconcile of %s failed: %s",
            job,
            describe_error(error),
            exc_info=None if known else error,
            extra={"job": job},
        )


def _call_in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[T], None], argument: T) -> None:
    """Call `call(argument)` in the loop, from another thread; ignored after the loop has closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, argument)


def select(settings: kopf.OperatorSettings) -> None:
    """Restrict the watches of shared kinds to objects made for jobs, and store nothing for Kopf."""
    keep_nothing(settings)
    for kind, (group, version, plural) in PLACES.items():
        if labels_of(kind):
            settings.watching.label_selectors[group, version, plural] = labels_of(kind)
