"""Only the Pod of its plan or attempt may write the status of a checkpoint; on the real API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from support.cluster.jobs import Jobs, wait_for
from support.cluster.namespaces import new_namespace
from support.cluster.operators import WORKERS, Release
from testbed.accounts import make_token
from testbed.cluster import Testbed
from tokenization_operator.build.children import Attempt, build_checkpoint, image_of
from tokenization_operator.objects.kinds import Kind
from tokenization_operator.settings import Settings
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.metadata import API_VERSION

pytestmark = pytest.mark.testbed

CLUSTER = "demo-r1-a1-abcde"
MINE = f"{CLUSTER}-head-x7k2p"
OTHER_ACCOUNT = "another"
NAME = "demo-r1"


class Desk(NamedTuple):
    """A namespace whose checkpoint is written by the Pod `MINE`; `write` says with which code it was answered."""

    api: client.ApiClient
    jobs: Jobs

    def pod(self, name: str, account: str = WORKERS) -> str:
        """Make a Pod; its name."""
        locked = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}
        container = {"name": "main", "image": "testbed/worker:hold", "securityContext": locked}
        safe = {"runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
        spec = {"serviceAccountName": account, "containers": [container], "securityContext": safe}
        pod = {"metadata": {"name": name}, "spec": spec}
        client.CoreV1Api(self.api).create_namespaced_pod(self.jobs.namespace, pod)
        return name

    @contextmanager
    def spec(self, **changes: Any) -> Iterator[None]:
        """The checkpoint's spec is another one, as when the operator has written it."""
        before = self.jobs.get(NAME, Kind.CHECKPOINT)["spec"]
        self.jobs.patch(Kind.CHECKPOINT, NAME, {"spec": changes})
        try:
            yield
        finally:
            self.jobs.patch(Kind.CHECKPOINT, NAME, {"spec": {name: before[name] for name in changes}})

    def write(self, pod: str | None, status: dict[str, Any], account: str = WORKERS) -> tuple[int, str]:
        """Patch the status with a token for that Pod, or for none; the answer's code and words."""
        configuration = client.Configuration()
        for name in ("host", "ssl_ca_cert"):
            setattr(configuration, name, getattr(self.api.configuration, name))
        configuration.api_key = {"authorization": f"Bearer {make_token(self.api, self.jobs.namespace, account, pod)}"}
        with client.ApiClient(configuration) as theirs:
            try:
                Jobs(theirs, self.jobs.namespace).patch(Kind.CHECKPOINT, NAME, status, is_status=True)
            except ApiException as error:
                return error.status, str(error.body)
        return 200, ""


NO_POD = "only a Pod may write"
FAILURE = {"attempt": 1, "exitCode": 5, "reason": "StorageFailed", "message": "no"}


def progress(done: int, attempt: int = 1) -> dict[str, Any]:
    return {"progress": {"attempt": attempt, "rangesCompleted": done}}


@pytest.fixture(scope="module")
def desk(bed: Testbed, api: client.ApiClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with new_namespace(api) as namespace:
        Release(bed, api, namespace, tmp_path_factory.mktemp("desk"), "writerPolicy.enabled=true")
        core = client.CoreV1Api(api)
        core.create_namespaced_service_account(namespace, {"metadata": {"name": OTHER_ACCOUNT}})
        subjects = [{"kind": "ServiceAccount", "name": OTHER_ACCOUNT, "namespace": namespace}]
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": WORKERS}
        binding = {"metadata": {"name": OTHER_ACCOUNT}, "roleRef": role, "subjects": subjects}
        client.RbacAuthorizationV1Api(api).create_namespaced_role_binding(namespace, binding)
        desk = Desk(api, Jobs(api, namespace))
        desk.jobs.create(Kind.CHECKPOINT, checkpoint(namespace))
        desk.pod(MINE)
        wait_for(lambda: desk.write(None, progress(0))[1], lambda said: NO_POD in said)  # a policy takes its time
        yield desk


def checkpoint(namespace: str) -> dict[str, Any]:
    """As the operator makes it, for the head Pod of an attempt."""
    job = TokenizationJob.model_validate(
        {
            "apiVersion": API_VERSION,
            "kind": "TokenizationJob",
            "metadata": {"name": "demo", "namespace": namespace},
            "spec": {
                "source": {"uris": ["gs://corpus"]},
                "tokenizer": {"name": "gpt2"},
                "output": {"uri": "gs://tokens"},
            },
        }
    )
    image = image_of(job, Settings(image="worker:1", ray_version="2.60.0"), None)
    made = build_checkpoint(job, "uid", Attempt(1, 1, image, replicas=1), f"{CLUSTER}-head")
    del made["metadata"]["ownerReferences"]  # there is no such job, and it would go at once
    return made


@pytest.mark.parametrize(
    ("pod", "account", "words"),
    [
        (None, WORKERS, NO_POD),
        ("demo-r1-a2-abcde-head-x7k2p", WORKERS, "not by demo-r1-a2-abcde-head-x7k2p"),
        ("demo-1-r1-a1-abcde-head-x7k2p", WORKERS, "not by demo-1-r1-a1-abcde-head-x7k2p"),
        (f"{CLUSTER}-head-2-r1-a1-abcde-head-x7k2p", WORKERS, "is written by the Pod of its plan or attempt"),
        (f"{CLUSTER}-worker-x7k2p", WORKERS, "is written by the Pod of its plan or attempt"),
        (f"{CLUSTER}-head-other", OTHER_ACCOUNT, "under the ServiceAccount of its job"),
    ],
    ids=["no Pod", "another attempt", "another job", "a job whose name begins so", "a worker", "a chosen account"],
)
def test_others_are_refused(desk: Desk, pod: str | None, account: str, words: str) -> None:
    code, said = desk.write(pod and desk.pod(pod, account), progress(1), account)
    assert code == 403, said
    assert words in said


def test_the_pod_of_the_attempt_may_write_and_completed_ranges_stay_completed(desk: Desk) -> None:
    assert desk.write(MINE, progress(5)) == (200, "")
    assert desk.write(MINE, progress(5)) == (200, "")
    code, said = desk.write(MINE, progress(4))
    assert code == 422
    assert "cannot become fewer" in said
    for fewer in ({"progress": None}, {"progress": {"rangesCompleted": None}}):
        code, said = desk.write(MINE, fewer)
        assert code == 422
        assert "taken away" in said
    code, said = desk.write(MINE, {"progress": {"attempt": 1, "rangesCompleted": 4, "failure": FAILURE}})
    assert code == 422
    assert "cannot become fewer" in said
    last_report = {"attempt": 1, "rangesCompleted": None, "failure": FAILURE}
    assert desk.write(MINE, {"progress": last_report}) == (200, ""), "one that has not counted yet may fail"


def test_progress_is_that_of_the_present_attempt(desk: Desk) -> None:
    code, said = desk.write(MINE, progress(9, attempt=2))
    assert code == 422
    assert "attempt in the checkpoint's spec" in said
    with desk.spec(attempt={"number": 2}):
        assert desk.write(MINE, progress(0, attempt=2)) == (200, ""), "it counts anew"


def test_no_pod_may_write_without_an_attempt(desk: Desk) -> None:
    with desk.spec(writerPodPrefix=None):
        code, said = desk.write(MINE, progress(9))
    assert code == 403
    assert "none now" in said


def test_a_checkpoint_of_an_earlier_version_names_no_account(desk: Desk) -> None:
    pod = desk.pod(f"{CLUSTER}-head", OTHER_ACCOUNT)
    with desk.spec(writerServiceAccount=None):
        assert desk.write(pod, {"plan": {"files": 2}}, OTHER_ACCOUNT) == (200, "")
    assert desk.write(pod, {"plan": {"files": 3}}, OTHER_ACCOUNT)[0] == 403


def test_the_plan_pod_writes_the_plan(desk: Desk) -> None:
    with desk.spec(writerPodPrefix="demo-r1-p1-"):
        assert desk.write(desk.pod("demo-r1-p1-x7k2p"), {"plan": {"files": 1}}) == (200, "")
