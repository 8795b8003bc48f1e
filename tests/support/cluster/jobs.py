"""TokenizationJobs on the test bed, as their users see them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from kubernetes import client, watch

from testbed.patience import Patience
from tokenization_operator.objects.kinds import PLACES, Kind
from tokenization_operator.objects.names import JOB_LABEL
from tokenization_worker.api.metadata import API_VERSION

POLL_S = 0.25
"""Of the API server, which all processes of tests ask; it is what most of their time goes into."""

DEADLINE_S = 300.0
"""Patience costs nothing where a test passes: this bounds how long one waits in vain."""

BEHIND_THE_SAMPLE = 2_000
"""Good lines of a kilobyte each: what follows them is not read by a plan, which looks at half a megabyte in all."""

_MERGE = "application/merge-patch+json"


class Jobs:
    """The jobs of a namespace, and what belongs to them."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self._custom: Any = client.CustomObjectsApi(api)
        self._core: Any = client.CoreV1Api(api)
        self.namespace = namespace

    def apply(self, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
        """Create a job; `metadata`: more than its name."""
        return self.create(Kind.JOB, job_manifest(name, spec, **metadata))

    def create(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = self._custom.create_namespaced_custom_object(*self._place(kind), body)
        return made

    def edit(self, name: str, spec: dict[str, Any]) -> None:
        """Merge into the spec."""
        self.patch(Kind.JOB, name, {"spec": spec})

    def patch(self, kind: Kind, name: str, body: dict[str, Any], *, is_status: bool = False) -> None:
        """Merge into an object, with all rights."""
        call = self._custom.patch_namespaced_custom_object
        if is_status:
            call, body = self._custom.patch_namespaced_custom_object_status, {"status": body}
        call(*self._place(kind), name, body, _content_type=_MERGE)

    def delete(self, name: str, kind: Kind = Kind.JOB) -> None:
        self._custom.delete_namespaced_custom_object(*self._place(kind), name)

    def delete_all(self, kind: Kind) -> None:
        """What they own follows in its own time."""
        self._custom.delete_collection_namespaced_custom_object(*self._place(kind))

    def get(self, name: str, kind: Kind = Kind.JOB) -> dict[str, Any]:
        found: dict[str, Any] = self._custom.get_namespaced_custom_object(*self._place(kind), name)
        return found

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(name).get("status") or {}
        return found

    def all(self, kind: Kind) -> list[dict[str, Any]]:
        if kind is Kind.POD:
            found = self._core.list_namespaced_pod(self.namespace)
            items: list[dict[str, Any]] = self._core.api_client.sanitize_for_serialization(found)["items"]
        else:
            selector = JOB_LABEL if kind is Kind.PLAN_JOB else ""  # KubeRay's submitters are Jobs, too
            found = self._custom.list_namespaced_custom_object(*self._place(kind), label_selector=selector)
            items = found["items"]
        return items

    def names(self, kind: Kind) -> list[str]:
        return sorted(each["metadata"]["name"] for each in self.all(kind))

    def events(self, name: str) -> list[tuple[str, str, str]]:
        """Type, reason and message of what was said of a job, in order."""
        found = self._core.list_namespaced_event(self.namespace, field_selector=f"involvedObject.name={name}").items
        mine = [each for each in found if each.involved_object.kind == Kind.JOB]
        mine.sort(key=lambda each: int(each.metadata.resource_version))
        return [(each.type, each.reason, each.message) for each in mine]

    def count_attempts(self, name: str) -> int:
        """RayJobs that were ever made for a job."""
        return [reason for _, reason, _ in self.events(name)].count("ClusterRequested")

    def wait(
        self, name: str, holds: Callable[[dict[str, Any]], bool], deadline_s: float = DEADLINE_S
    ) -> dict[str, Any]:
        """The job's status once that holds."""
        return wait_for(lambda: self.status(name), holds, deadline_s)

    def reach(self, name: str, phase: str, reason: str = "", deadline_s: float = DEADLINE_S) -> dict[str, Any]:
        """The job's status once it is in that phase, for that reason."""
        return self.wait(
            name, lambda status: status.get("phase") == phase and reason in ("", status.get("reason")), deadline_s
        )

    def wait_for_driver(self, name: str) -> None:
        """Until KubeRay has started the driver of the first attempt."""
        ray_job = f"{name}-r1-a1"
        wait_for(lambda: ray_job in self.names(Kind.RAY_JOB), bool)
        wait_for(
            lambda: self.get(ray_job, Kind.RAY_JOB).get("status") or {},
            lambda status: status.get("jobStatus") == "RUNNING",
        )

    def _place(self, kind: Kind) -> tuple[str, str, str, str]:
        place = PLACES[kind]
        return place.group, place.version, self.namespace, place.plural


T = TypeVar("T")


def watch_kind(api: client.ApiClient, namespace: str, kind: Kind, **how: Any) -> Iterator[dict[str, Any]]:
    """What a watch of a custom kind brings, until it ends; `how`: as the API server has it."""
    place = PLACES[kind]
    call = client.CustomObjectsApi(api).list_namespaced_custom_object
    yield from watch.Watch().stream(call, place.group, place.version, namespace, place.plural, **how)


def job_manifest(name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A job as its user writes it; `metadata`: more than its name."""
    return {"apiVersion": API_VERSION, "kind": str(Kind.JOB), "metadata": {"name": name, **metadata}, "spec": spec}


def wait_for(look: Callable[[], T], holds: Callable[[T], bool], deadline_s: float = DEADLINE_S) -> T:
    """What `look` sees once that holds. A pause of the whole machine, in which nothing could happen, hardly counts."""
    patience = Patience(deadline_s)
    while not holds(seen := look()):
        assert not patience.is_over(), seen
        time.sleep(POLL_S)
    return seen


def text_files(folder: Path, files: int = 4, lines: int = 500) -> str:
    """Write a source of JSON lines; its URI."""
    folder.mkdir(parents=True)
    for number in range(files):
        text = "".join(f'{{"text": "file {number}, line {line}: some text"}}\n' for line in range(lines))
        (folder / f"{number}.jsonl").write_text(text, encoding="utf-8")
    return f"file://{folder}"


def bad_lines(path: Path, good: int = 1, bad: int = 9) -> None:
    """Write JSON lines: `good` ones of about a kilobyte, then `bad` ones without a text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"text": "some text " * 100}) + "\n"
    path.write_text(line * good + '{"no": "text"}\n' * bad, encoding="utf-8")


def local_spec(folder: Path, **more: Any) -> dict[str, Any]:
    """A job that reads and writes below a folder of this machine."""
    source = folder / "src"
    if not source.exists():
        text_files(source)
    return {
        "source": {"uris": [f"file://{source}"]},
        "tokenizer": {"name": "gpt2"},
        "output": {"uri": f"file://{folder / 'out'}"},
        **more,
    }
