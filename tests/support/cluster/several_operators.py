"""What tests of several operators at once share: the job that each of them is given, the RayJobs that they make, and
how long they are waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from support.cluster.jobs import Jobs, wait_for, watch_kind
from tokenization_operator.objects.kinds import Kind

IMAGE = "testbed/worker:hold"
_AGAIN_S = 0.5


def spec(name: str) -> dict[str, Any]:
    output = {"uri": f"gs://tokens/{name}/{{rerunToken}}"}
    return {"source": {"uris": ["gs://corpus/"]}, "tokenizer": {"name": "gpt2"}, "output": output, "rerunToken": "0"}


class Seen:
    """Every RayJob that there ever was in a namespace, and whether two of a job were there at once."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self.made: list[str] = []
        self.doubled: list[tuple[str, ...]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        there: set[str] = set()
        version = ""
        while not self._ended.is_set():
            try:
                if not version:
                    there &= set(Jobs(self._api, self._namespace).names(Kind.RAY_JOB))
                    version = "0"
                how = {"resource_version": version, "timeout_seconds": 2}
                for event in watch_kind(self._api, self._namespace, Kind.RAY_JOB, **how):
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._take(event["type"], event["object"]["metadata"]["name"], there)
            except ApiException as error:
                version = "" if error.status == 410 else version
                self._ended.wait(_AGAIN_S)
            except HTTPError:  # the connection broke: the watch goes on from there
                self._ended.wait(_AGAIN_S)

    def _take(self, what: str, name: str, there: set[str]) -> None:
        if what == "DELETED":
            there.discard(name)
        elif name not in there:
            there.add(name)
            self.made.append(name)
            job = name.rpartition("-r")[0]
            same = tuple(each for each in there if each.rpartition("-r")[0] == job)
            if len(same) > 1:
                self.doubled.append(same)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()


@contextmanager
def seeing(api: client.ApiClient, namespace: str) -> Iterator[Seen]:
    seen = Seen(api, namespace)
    try:
        yield seen
    finally:
        seen.close()


def wait_for_success(jobs: Jobs, count: int) -> None:
    """Until so many jobs have succeeded, however long that takes: it fails when none of them has come to a phase that
    is new to it for as long as one waits for anything."""
    known: set[tuple[str, str]] = set()

    def look() -> dict[str, str]:
        return {each["metadata"]["name"]: (each.get("status") or {}).get("phase", "") for each in jobs.all(Kind.JOB)}

    def have_succeeded(phases: dict[str, str]) -> bool:
        return list(phases.values()) == ["Succeeded"] * count

    while True:
        phases = wait_for(look, lambda phases: have_succeeded(phases) or not known.issuperset(phases.items()))
        if have_succeeded(phases):
            return
        known.update(phases.items())
