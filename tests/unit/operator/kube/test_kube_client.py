"""Calls of the operator, with answers that a real API server gives only at bad moments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.aio.client.exceptions import ApiException

from tokenization_operator.decide.actions import Create, Delete, UpdateCheckpoint
from tokenization_operator.kube.client import Conflict, KubeClient, Rejected
from tokenization_operator.kube.fence import Fence, NotLeading
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.observe.observation import KubeRay

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
RAY_JOB = {
    "metadata": {"name": "demo-r1-a1", "namespace": "team", "uid": "u"},
    "spec": {"rayClusterSpec": {"authOptions": {"mode": "token"}}},
}


class Answers:
    """Stands for the calls of custom objects: what creations answer, and what was deleted."""

    def __init__(self, made: dict[str, Any] | ApiException) -> None:
        self.made = made
        self.deleted: list[str] = []

    async def create_namespaced_custom_object(self, *_: Any, **__: Any) -> dict[str, Any]:
        if isinstance(self.made, ApiException):
            raise self.made
        return self.made

    async def delete_namespaced_custom_object(self, *words: Any, **_: Any) -> None:
        self.deleted.append(words[4])


def refusal(status: int, words: str) -> ApiException:
    error = ApiException(status=status, reason="no")
    error.body = f'{{"message": "{words}"}}'
    return error


def client_of(answers: Any) -> KubeClient:
    kube = KubeClient(SimpleNamespace())  # type: ignore[arg-type]  # nothing is called over it
    kube._custom = answers
    return kube


REFUSALS = [
    refusal(403, "admission webhook denied it"),
    refusal(422, "spec is invalid"),
    refusal(500, "failed calling webhook: no endpoints"),
]


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: str(error.status))
def test_a_rejected_child_is_reported_with_the_message_of_the_api_server(error: ApiException) -> None:
    kube = client_of(Answers(error))
    with pytest.raises(Rejected, match=r"webhook|invalid"):
        asyncio.run(kube.create(Create(Kind.RAY_JOB, RAY_JOB), "uid"))


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: str(error.status))
def test_a_policy_that_refuses_the_probe_leaves_the_word_to_the_real_one(error: ApiException) -> None:
    assert asyncio.run(client_of(Answers(error)).kuberay("team")) is KubeRay.AVAILABLE


def test_a_ray_job_whose_dashboard_is_open_is_taken_back() -> None:
    answers = Answers({**RAY_JOB, "spec": {"rayClusterSpec": {}}})
    with pytest.raises(Rejected, match=r"upgrade them to 1\.6"):
        asyncio.run(client_of(answers).create(Create(Kind.RAY_JOB, RAY_JOB), "uid"))
    assert answers.deleted == ["demo-r1-a1"]


TRIAL = {"metadata": {"name": "demo-workers", "namespace": "team"}}


class Trials(Answers):
    """`verdict`: on a dry run; None if it is accepted."""

    def __init__(self, verdict: ApiException | None) -> None:
        super().__init__(RAY_JOB)
        self.verdict = verdict
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def create_namespaced_custom_object(self, *words: Any, **options: Any) -> dict[str, Any]:
        options.pop("_request_timeout")
        self.asked.append((words[3], options))
        if options and self.verdict is not None:
            raise self.verdict
        return RAY_JOB


DRY_RUN = ("jobs", {"dry_run": "All", "field_validation": "Strict"})


@pytest.mark.parametrize(
    "verdict",
    [
        None,
        refusal(403, "quota"),
        refusal(409, "exists"),
        refusal(400, "admission webhook a does not support dry run"),
        refusal(422, "ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no owner"),
    ],
    ids=["accepted", "quota", "exists", "webhook", "policy"],
)
def test_a_child_is_made_after_its_pods_were_tried(verdict: ApiException | None) -> None:
    answers = Trials(verdict)
    asyncio.run(client_of(answers).create(Create(Kind.RAY_JOB, RAY_JOB, (TRIAL, TRIAL)), "uid"))
    assert answers.asked == [DRY_RUN, DRY_RUN, ("rayjobs", {})]


@pytest.mark.parametrize("verdict", [refusal(422, "effect is invalid"), refusal(400, "unknown field is invalid")])
def test_a_child_whose_pods_are_malformed_is_not_made(verdict: ApiException) -> None:
    answers = Trials(verdict)
    with pytest.raises(Rejected, match="is invalid"):
        asyncio.run(client_of(answers).create(Create(Kind.RAY_JOB, RAY_JOB, (TRIAL,)), "uid"))
    assert answers.asked == [DRY_RUN]


CHECKPOINT = {
    "metadata": {"name": "demo-r1", "namespace": "team", "uid": "c", "ownerReferences": [{"uid": "uid"}]},
    "spec": {"attempt": {"number": 1}, "writerPodPrefix": "old"},
}


class OneCheckpoint:
    """Stands for the calls of custom objects: a checkpoint that is there, and what was asked of it."""

    def __init__(self, version: str, there: dict[str, Any] | None = None) -> None:
        self.there = there or with_version(version)
        self.asked: list[str] = []
        self.is_gone = False

    async def create_namespaced_custom_object(self, *_: Any, **__: Any) -> None:
        self.asked.append("create")
        raise ApiException(status=409)

    async def get_namespaced_custom_object(self, *_: Any, **__: Any) -> dict[str, Any]:
        self.asked.append("get")
        return self.there

    async def patch_namespaced_custom_object(self, *words: Any, **_: Any) -> dict[str, Any]:
        self.asked.append("patch")
        body = words[5]
        if self.is_gone:
            raise ApiException(status=404)
        assert body["metadata"]["uid"] == "c"
        if body["metadata"]["resourceVersion"] != self.there["metadata"]["resourceVersion"]:
            raise ApiException(status=409)
        return {**self.there, "spec": {**self.there["spec"], **body["spec"]}}


def with_version(version: str, **spec: Any) -> dict[str, Any]:
    metadata = {**CHECKPOINT["metadata"], "resourceVersion": version}
    return {"metadata": metadata, "spec": {**CHECKPOINT["spec"], **spec}}


UPDATE = UpdateCheckpoint({"metadata": {"name": "demo-r1", "namespace": "team"}}, {"attempt": {"number": 2}})


DONE = with_version("7", attempt={"number": 2})
LEAVING = {**with_version("7"), "metadata": {**with_version("7")["metadata"], "deletionTimestamp": "now"}}


@pytest.mark.parametrize(
    ("there", "known", "asked"),
    [
        (with_version("7"), with_version("7"), ["patch"]),
        (DONE, DONE, ["create", "get"]),
        (with_version("7"), with_version("6"), ["patch", "create", "get", "patch"]),
        (with_version("7"), None, ["create", "get", "patch"]),
    ],
    ids=["as it is", "done already", "older than what is there", "not seen"],
)
def test_a_checkpoint_that_is_known_is_updated_with_one_request(there: Any, known: Any, asked: list[str]) -> None:
    answers = OneCheckpoint("7", there)
    updated = asyncio.run(client_of(answers).update_checkpoint(UPDATE, "uid", known))
    assert updated["spec"]["attempt"] == {"number": 2}
    assert answers.asked == asked


def test_a_checkpoint_that_is_leaving_is_waited_for() -> None:
    answers = OneCheckpoint("7", LEAVING)
    with pytest.raises(Conflict):
        asyncio.run(client_of(answers).update_checkpoint(UPDATE, "uid", LEAVING))
    assert "patch" not in answers.asked


def test_a_checkpoint_that_is_known_and_gone_is_made_again() -> None:
    answers = OneCheckpoint("7")
    answers.is_gone = True
    with pytest.raises(Conflict):
        asyncio.run(client_of(answers).update_checkpoint(UPDATE, "uid", with_version("7")))
    assert answers.asked == ["patch", "create", "get", "patch"]


class Accounts:
    """Stands for the calls of the core: the ServiceAccount of a namespace."""

    def __init__(self) -> None:
        self.is_there = False
        self.asked = 0

    async def read_namespaced_service_account(self, *_: Any, **__: Any) -> object:
        self.asked += 1
        if not self.is_there:
            raise ApiException(status=404)
        return object()


def test_a_service_account_is_asked_for_by_name() -> None:
    kube = KubeClient(SimpleNamespace())  # type: ignore[arg-type]  # as above
    kube._core = accounts = Accounts()
    assert not asyncio.run(kube.has_service_account("team", "worker"))
    accounts.is_there = True
    assert asyncio.run(kube.has_service_account("team", "worker"))


@pytest.mark.parametrize("status", [404, 405], ids=["gone", "going"])
def test_a_kind_that_is_gone_when_a_ray_job_is_made_is_asked_for_no_more_for_now(status: int) -> None:
    answers = Answers(refusal(status, "no such kind"))
    kube = client_of(answers)
    with pytest.raises(Conflict):
        asyncio.run(kube.create(Create(Kind.RAY_JOB, RAY_JOB), "uid"))
    answers.made = RAY_JOB
    assert asyncio.run(kube.kuberay("team")) is KubeRay.MISSING


@pytest.mark.parametrize("status", [404, 405], ids=["gone", "going"])
def test_a_kind_that_is_gone_is_missed_and_its_return_is_noticed_soon(status: int) -> None:
    seconds = [0.0]
    answers = Answers(refusal(status, "no such kind"))
    kube = KubeClient(SimpleNamespace(), lambda: seconds[0])  # type: ignore[arg-type]  # as above
    kube._custom = answers
    assert asyncio.run(kube.kuberay("team")) is KubeRay.MISSING
    answers.made, seconds[0] = RAY_JOB, 11.0
    assert asyncio.run(kube.kuberay("team")) is KubeRay.AVAILABLE


class Lists:
    """Stands for a client: what lists answer, and what was asked of them."""

    def __init__(self, items: list[Any] | None) -> None:
        self.items = items
        self.asked: list[tuple[str, str]] = []

    async def call_api(self, path: str, method: str, *, header_params: dict[str, str], **_: Any) -> dict[str, Any]:
        self.asked.append((path, header_params["Accept"]))
        return {"items": self.items, "metadata": {}}


@pytest.mark.parametrize("items", [None, [], [{"metadata": {"uid": "u"}}]], ids=["null", "none", "one"])
def test_metadata_are_listed_where_nothing_else_is_of_use(items: list[Any] | None) -> None:
    kube = KubeClient(SimpleNamespace())  # type: ignore[arg-type]  # as above
    kube._api = lists = Lists(items)

    async def listed(kind: Kind, namespace: str | None, **how: bool) -> list[Any]:
        return [item async for item in kube.list_all(kind, namespace, **how)]

    assert asyncio.run(listed(Kind.POD, "team", only_metadata=True)) == (items or [])
    asyncio.run(listed(Kind.RAY_JOB, None))
    (pods, metadata), (ray_jobs, whole) = lists.asked
    assert (pods, ray_jobs) == ("/api/v1/namespaces/team/pods", "/apis/ray.io/v1/rayjobs")
    assert "as=PartialObjectMetadataList" in metadata
    assert whole == "application/json"


JOB = {"metadata": {"name": "demo", "namespace": "team", "uid": "u", "resourceVersion": "1"}}

WRITES: dict[str, Callable[[KubeClient], Any]] = {
    "status": lambda kube: kube.write_status(JOB, {"phase": "Running"}),
    "create": lambda kube: kube.create(Create(Kind.RAY_JOB, RAY_JOB), "u"),
    "update_checkpoint": lambda kube: kube.update_checkpoint(UPDATE, "u", with_version("7")),
    "delete": lambda kube: kube.delete(Delete(Kind.RAY_JOB, "demo-r1-a1", "u", "1"), "team"),
    "event": lambda kube: kube.events.post(JOB, "Normal", "Running", "it runs"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_an_operator_that_has_lost_its_lease_writes_nothing(write: Callable[[KubeClient], Any]) -> None:
    fence = Fence()
    fence.close()
    with pytest.raises(NotLeading):  # no request is sent: no API server would answer it
        asyncio.run(write(KubeClient(SimpleNamespace(), fence=fence)))  # type: ignore[arg-type]


def test_a_write_takes_no_longer_than_the_lease_is_held() -> None:
    fence = Fence(lambda: 0.0)
    fence.open_until(3.0)
    asked: list[float] = []

    class Slow:
        async def delete_namespaced_custom_object(self, *_: Any, _request_timeout: float, **__: Any) -> None:
            asked.append(_request_timeout)

    kube = KubeClient(SimpleNamespace(), fence=fence)  # type: ignore[arg-type]
    kube._custom = Slow()
    asyncio.run(kube.delete(Delete(Kind.RAY_JOB, "demo-r1-a1", "u", "1"), "team"))
    assert asked == [3.0]


def test_exactly_the_version_that_was_decided_on_is_deleted() -> None:
    asked: list[Any] = []

    class Desk:
        async def delete_namespaced_custom_object(self, *_: Any, body: Any, **__: Any) -> None:
            asked.append(body.preconditions)
            raise ApiException(status=409)

    kube = client_of(Desk())
    with pytest.raises(Conflict):
        asyncio.run(kube.delete(Delete(Kind.RAY_JOB, "demo-r1-a1", "u", "7"), "team"))
    [exactly] = asked
    assert (exactly.uid, exactly.resource_version) == ("u", "7")
