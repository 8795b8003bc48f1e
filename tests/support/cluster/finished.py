"""Makes many finished jobs on a real API server at once: each with the checkpoint and the RayJob that its run leaves.

The objects are those of one story that ends well on the API server in memory, with names and UIDs of their own.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import urllib3
from kubernetes import client

from support.cluster.jobs import Jobs, wait_for
from support.cluster.story import NAME, Story, running
from testbed.cluster import Testbed
from testbed.control_plane import API_SERVER
from tokenization_operator.objects.kinds import PLACES, Kind
from tokenization_worker.api.types.times import time_text

_THREADS = 8
_MOST_RANGES = 64
_PATIENCE_S = 900.0
_KINDS = (Kind.JOB, Kind.CHECKPOINT, Kind.RAY_JOB)
_OF_KUBERAY = {"managedBy": "kueue.x-k8s.io/multikueue"}
"""KubeRay leaves a RayJob with this alone: it would begin to run what is finished here."""


def make_finished(bed: Testbed, api: client.ApiClient, namespace: str, names: list[str], ended_ago_s: float) -> None:
    """Make finished jobs with these names, whose RayJobs ended so long ago.

    The first one comes through the API server, which takes a quarter of a second for it. The others are copies of what
    it has stored, put where it stores them while it is stopped.
    """
    first = names[0]
    _make(api, namespace, first, datetime.now(UTC) - timedelta(seconds=ended_ago_s))
    store = _Store(bed.etcd_url)
    stored = [(kind, key, text) for kind in _KINDS for key, text in store.read(_folder(kind, namespace))]
    uids = {kind: json.loads(text)["metadata"]["uid"] for kind, _, text in stored}

    def copy(name: str) -> None:
        mine = {uid: str(uuid.uuid4()) for uid in uids.values()}
        for _, key, text in stored:
            copied = text.replace(first, name)
            for uid, new in mine.items():
                copied = copied.replace(uid, new)
            store.write(key.replace(first, name), copied)

    bed.processes.stop(API_SERVER)
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(copy, names[1:]):
            pass
    bed.start_api_server_again()
    for kind in _KINDS:
        wait_for(lambda kind=kind: _is_known(bed, kind, namespace, store.version), bool, _PATIENCE_S)


def _is_known(bed: Testbed, kind: Kind, namespace: str, stored: int) -> bool:
    """Whether the API server has read what was stored, and lists it from its memory."""
    group, version, plural = PLACES[kind]
    query = f"limit=1&resourceVersion={stored}&resourceVersionMatch=NotOlderThan"
    try:
        bed.call("GET", f"/apis/{group}/{version}/namespaces/{namespace}/{plural}?{query}")
    except urllib.error.HTTPError as error:
        if error.code != 504:
            raise
        return False
    return True


def _folder(kind: Kind, namespace: str) -> str:
    group, _, plural = PLACES[kind]
    return f"/registry/{group}/{plural}/{namespace}/"


class _Store:
    """The keys and values of an etcd, by its JSON gateway."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.version = 0
        self._pool = urllib3.PoolManager(maxsize=_THREADS)

    def read(self, prefix: str) -> list[tuple[str, str]]:
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        found = self._ask("range", {"key": _encoded(prefix), "range_end": _encoded(end)})
        return [(_decoded(each["key"]), _decoded(each["value"])) for each in found.get("kvs", ())]

    def write(self, key: str, value: str) -> None:
        self._ask("put", {"key": _encoded(key), "value": _encoded(value)})

    def _ask(self, what: str, body: dict[str, str]) -> dict[str, Any]:
        answer = self._pool.request("POST", f"{self._url}/v3/kv/{what}", body=json.dumps(body).encode())
        assert answer.status == 200, answer.data
        found: dict[str, Any] = json.loads(answer.data)
        self.version = max(self.version, int(found["header"]["revision"]))
        return found


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()


def finished_story(ended: datetime) -> Story:
    """A job whose run was committed at that moment, and of which KubeRay has taken the cluster away."""
    story = running()
    story.now = ended
    story.progress(4)
    ranges = [{"start": 2 * number, "end": 2 * number + 1} for number in range(_MOST_RANGES)]
    story.report(progress={"completedRanges": ranges, "stage": "Finish", "documents": 10**6, "bytesRead": 10**9})
    story.commit()
    moment = time_text(ended)
    story.ray(
        jobDeploymentStatus="Complete",
        jobStatus="SUCCEEDED",
        jobId=f"{NAME}-r1-a1-x7x7x",
        dashboardURL=f"{NAME}-r1-a1-abcde-head-svc.team.svc.cluster.local:8265",
        message="Job finished successfully.",
        startTime=moment,
        endTime=moment,
        succeeded=1,
        failed=0,
        observedGeneration=1,
        rayClusterStatus={"desiredWorkerReplicas": 2, "state": "ready", "head": {"serviceIP": "10.0.0.1"}},
    )
    return story


def _make(api: client.ApiClient, namespace: str, name: str, ended: datetime) -> None:
    story = finished_story(ended)
    uid = first_uid = story.job["metadata"]["uid"]
    jobs = Jobs(api, namespace)
    for kind in _KINDS:
        text = json.dumps(story.api.of(kind)[0]).replace(NAME, name).replace(f'"{first_uid}"', f'"{uid}"')
        body = json.loads(text)
        kept = {field: body["metadata"][field] for field in ("labels", "ownerReferences") if field in body["metadata"]}
        body["metadata"] = {"name": body["metadata"]["name"], **kept}
        if kind is Kind.RAY_JOB:
            body["spec"] |= _OF_KUBERAY
        status = body.pop("status")
        made = jobs.create(kind, body)
        jobs.patch(kind, body["metadata"]["name"], status, is_status=True)
        if kind is Kind.JOB:
            uid = made["metadata"]["uid"]
