"""Elects the active operator: the one that holds the Lease.

The official client library runs the election; this module implements its lock and extends the fence with each renewal.
The election has its own thread, so the Lease is renewed even while the event loop is busy.

A holder that cannot renew stops writing after `RENEW_S`; another operator takes the Lease `LEASE_S` after the last
renewal that it saw. Both use clocks that cannot be set. The library compares times of day, so the lock itself decides
whether a Lease has expired.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.leaderelection.electionconfig import Config
from kubernetes.leaderelection.leaderelection import LeaderElection
from kubernetes.leaderelection.leaderelectionrecord import LeaderElectionRecord
from urllib3.exceptions import HTTPError

from tokenization_operator.kube.fence import Fence
from tokenization_operator.settings import LeaseSettings

log = logging.getLogger(__name__)

LEASE_S = 15
RENEW_S = 10
RETRY_S = 2
"""Kubernetes' own controllers use these values: a takeover takes 15 to 17 s, or 2 s after a release."""

_REQUEST_S = 5.0
_RELEASE_S = 0.4
_CODE_OF_NO_ANSWER = 503


@dataclass(frozen=True)
class NoAnswer:
    """An error in the form that the library expects: `body` is JSON with a `code`."""

    body: str
    reason: str


class LeaseLock:
    """The library's lock on a Lease: `get`, `create` and `update` return whether they succeeded and never raise."""

    def __init__(self, leases: Any, settings: LeaseSettings, fence: Fence, on_held: Callable[[], None]) -> None:
        self.name, self.namespace, self.identity = settings.name, settings.namespace, settings.identity
        self._leases = leases
        self._fence = fence
        self._on_held = on_held
        self._found: Any = None
        self._seen: tuple[Any, ...] = ()
        self._seen_at = 0.0
        self._one_at_a_time = threading.Lock()
        self._is_released = False

    def get(self, name: str, namespace: str) -> tuple[bool, LeaderElectionRecord | NoAnswer | None]:
        try:
            self._found = self._leases.read_namespaced_lease(name, namespace, _request_timeout=_REQUEST_S)
        except (ApiException, HTTPError) as error:
            return False, _no_answer(error)
        spec = self._found.spec
        if spec is None or not spec.holder_identity:
            return True, None
        if spec.holder_identity != self.identity:
            self._fence.close()
            if self._has_run_out(spec):
                return True, None
        times = (str(spec.acquire_time), str(spec.renew_time))
        return True, LeaderElectionRecord(spec.holder_identity, str(spec.lease_duration_seconds), *times)

    def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        lease = client.V1Lease(metadata=client.V1ObjectMeta(name=name, namespace=namespace), spec=self._held(None))
        return self._write(lambda: self._leases.create_namespaced_lease(namespace, lease, _request_timeout=_REQUEST_S))

    def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        spec = self._found.spec
        if spec is not None and spec.holder_identity not in (None, "", self.identity) and not self._has_run_out(spec):
            return False  # the library compared times of day, and the clock was set
        self._found.spec = self._held(spec)
        ask = self._leases.replace_namespaced_lease
        return self._write(lambda: ask(name, namespace, self._found, _request_timeout=_REQUEST_S))

    def release(self) -> None:
        """Give the Lease up so that another operator can take it at once, and stop all writes and renewals. If that
        takes too long, for example because the API server does not answer, the Lease expires."""
        self._is_released = True
        was_held = self._fence.is_open
        self._fence.close()
        if not was_held or not self._one_at_a_time.acquire(timeout=_RELEASE_S):
            return
        try:
            found = self._leases.read_namespaced_lease(self.name, self.namespace, _request_timeout=_RELEASE_S)
            if found.spec.holder_identity == self.identity:
                found.spec.holder_identity = ""
                self._leases.replace_namespaced_lease(self.name, self.namespace, found, _request_timeout=_RELEASE_S)
        except (ApiException, HTTPError) as error:
            log.warning("cannot release the Lease, which expires by itself: %s", _no_answer(error).reason)
        finally:
            self._one_at_a_time.release()

    def _has_run_out(self, spec: Any) -> bool:
        """Whether another holder has not renewed for `LEASE_S` by this operator's monotonic clock: times of day may
        jump."""
        seen = (spec.holder_identity, spec.renew_time, spec.lease_transitions)
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._fence.clock()
        return self._fence.clock() - self._seen_at >= LEASE_S

    def _held(self, before: Any) -> client.V1LeaseSpec:
        now = datetime.now(UTC)
        is_mine = before is not None and before.holder_identity == self.identity
        changes = 0 if before is None else (before.lease_transitions or 0) + (not is_mine)
        return client.V1LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=LEASE_S,
            acquire_time=before.acquire_time if is_mine else now,
            renew_time=now,
            lease_transitions=changes,
        )

    def _write(self, ask: Callable[[], Any]) -> bool:
        """Write the Lease. The fence is opened from the time of the request: the answer may be late."""
        with self._one_at_a_time:
            if self._is_released:
                return False
            began = self._fence.clock()
            try:
                ask()
            except (ApiException, HTTPError) as error:
                words = "cannot write the Lease %s/%s: %s. Check that the namespace exists, and the role for Leases"
                log.warning(words, self.namespace, self.name, _no_answer(error).reason)
                return False
            if self._is_released:
                return False
            was_open = self._fence.is_open
            self._fence.open_until(began + RENEW_S)
        if not was_open:
            self._on_held()
        return True


def _no_answer(error: ApiException | HTTPError) -> NoAnswer:
    if isinstance(error, ApiException) and error.status:
        return NoAnswer(json.dumps({"code": error.status}), f"{error.status} {error.reason}")
    return NoAnswer(json.dumps({"code": _CODE_OF_NO_ANSWER}), f"{type(error).__name__}: {error}")


class Election:
    """Takes part in the election until `release`. Its thread calls `on_change(True)` when this operator may write,
    `on_change(False)` when it has lost the Lease, and `on_end` with an error after which it no longer takes part."""

    def __init__(
        self,
        settings: LeaseSettings,
        fence: Fence,
        on_change: Callable[[bool], None],
        on_end: Callable[[Exception], None],
    ) -> None:
        leases = client.CoordinationV1Api(_connect())
        self._lock = LeaseLock(leases, settings, fence, on_held=lambda: on_change(True))
        self._on_change = on_change
        self._on_end = on_end
        logging.getLogger("leaderelection").setLevel(logging.WARNING)  # it logs each renewal

    def start(self) -> None:
        threading.Thread(target=self._run, name="election", daemon=True).start()

    def release(self) -> None:
        self._lock.release()

    def _run(self) -> None:
        try:
            while True:
                LeaderElection(
                    Config(
                        self._lock,
                        lease_duration=LEASE_S,
                        renew_deadline=RENEW_S,
                        retry_period=RETRY_S,
                        onstarted_leading=lambda: None,  # the lock reports it, also after a late renewal
                        onstopped_leading=lambda: self._on_change(False),
                    )
                ).run()
        except Exception as error:  # noqa: BLE001  any error of the library: without renewals the fence closes
            self._on_end(error)


def _connect() -> client.ApiClient:
    """Connect to the operator's API server, without hidden retries."""
    configuration = client.Configuration()
    config.load_config(client_configuration=configuration)
    configuration.retries = False
    return client.ApiClient(configuration)
