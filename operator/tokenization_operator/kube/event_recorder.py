"""Events: reads those about a job's children, posts the operator's own about a job."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
from kubernetes.aio import client
from kubernetes.aio.client.exceptions import ApiException

from tokenization_operator.decide.status.truncate import shorten
from tokenization_operator.kube.api_errors import TIMEOUT_S, describe_error
from tokenization_operator.kube.fence import Fence
from tokenization_operator.kube.paging import Ask, ask_of, pages
from tokenization_operator.kube.warning_lists import WarningLists, time_of
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.objects.reading import Object
from tokenization_operator.observe.observation import PodEvent
from tokenization_worker.api.metadata import API_VERSION

log = logging.getLogger(__name__)

_MOST_REASON = 128  # characters: the API server's limit
_MOST_LAST = 10_000

EVENT_SOURCE = "tokenization-operator"


class EventRecorder:
    """Reads and posts events in all namespaces. `core`: a `CoreV1Api`."""

    def __init__(self, core: Any, clock: Callable[[], float], fence: Fence) -> None:
        self._core = core
        self._fence = fence
        self._warnings = WarningLists(self._list, clock)
        self._last: dict[str, datetime] = {}  # by job UID

    async def warnings(self, namespace: str, names: frozenset[str], since: datetime) -> tuple[str, ...]:
        """Messages since then about failed creations for objects with these names."""
        return await self._warnings.find(namespace, names, since)

    def _list(self, namespace: str, selector: str) -> Ask:
        return ask_of(self._core.api_client, f"/api/v1/namespaces/{namespace}/events", {"fieldSelector": selector})

    async def of_pod(self, namespace: str, name: str) -> tuple[PodEvent, ...]:
        """Events about a Pod, oldest first. Expensive: the API server reads every event of the namespace."""
        selector = f"involvedObject.kind=Pod,involvedObject.name={name}"
        found = [each async for page in pages(self._list(namespace, selector)) for each in page]
        found.sort(key=lambda each: str(time_of(each)))
        return tuple(PodEvent(each.get("reason") or "", each.get("message") or "") for each in found)

    async def post(self, job: Object, kind: str, reason: str, message: str) -> None:
        """Post an event, which `kubectl describe` shows. A failure is only logged: the status carries the message
        too."""
        metadata = job["metadata"]
        moment = self._moment_of(metadata["uid"])
        body = client.CoreV1Event(
            metadata=client.V1ObjectMeta(generate_name=f"{metadata['name']}-", namespace=metadata["namespace"]),
            involved_object=client.V1ObjectReference(
                api_version=API_VERSION,
                kind=str(Kind.JOB),
                name=metadata["name"],
                namespace=metadata["namespace"],
                uid=metadata["uid"],
            ),
            type=kind,
            reason=reason[:_MOST_REASON],
            message=shorten(message),
            source=client.V1EventSource(component=EVENT_SOURCE),
            first_timestamp=moment,
            last_timestamp=moment,
            count=1,
        )
        limit_s = self._fence.left_s(TIMEOUT_S)
        try:
            await self._core.create_namespaced_event(metadata["namespace"], body, _request_timeout=limit_s)
        except (ApiException, aiohttp.ClientError, TimeoutError) as error:
            log.warning("cannot post an event: %s: %s", reason, describe_error(error), extra={"job": metadata["name"]})

    def _moment_of(self, uid: str) -> datetime:
        """Now, but at least a second after the job's last event: kubectl sorts events by whole seconds."""
        now = datetime.now(UTC).replace(microsecond=0)
        if len(self._last) > _MOST_LAST:
            self._last = {uid: moment for uid, moment in self._last.items() if moment >= now}
        last = self._last.get(uid)
        moment = now if last is None else max(now, last + timedelta(seconds=1))
        self._last[uid] = moment
        return moment
