"""The session's control plane, a namespace for each test, and an operator in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from kubernetes import client, config

from testbed.cluster import Testbed
from testbed.programs import Unavailable
from testbed.shared import shared_bed

_numbers = count()


@pytest.fixture(scope="session")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """A real control plane with KubeRay; skips where it cannot be had, unless REQUIRE_TESTBED is set."""
    root = tmp_path_factory.getbasetemp()
    folder = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "testbed"
    try:
        with shared_bed(folder) as bed:
            yield bed
    except Unavailable as error:
        if os.environ.get("REQUIRE_TESTBED"):
            raise
        pytest.skip(f"no control plane: {error}")


@pytest.fixture(scope="session")
def api(bed: Testbed) -> client.ApiClient:
    """As an administrator."""
    return config.new_client_from_config(str(bed.kubeconfig))


@pytest.fixture
def namespace(api: client.ApiClient) -> Iterator[str]:
    """A namespace of the restricted standard, prepared for jobs as the documentation says."""
    name = f"test-{os.getpid()}-{next(_numbers)}"
    core = client.CoreV1Api(api)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name, labels=labels)))
    prepare(api, name)
    yield name
    core.delete_namespace(name)


def prepare(api: client.ApiClient, namespace: str) -> None:
    """The ServiceAccount of jobs and what it may do."""
    account = "tokenization-worker"
    core, rbac = client.CoreV1Api(api), client.RbacAuthorizationV1Api(api)
    core.create_namespaced_service_account(
        namespace, client.V1ServiceAccount(metadata=client.V1ObjectMeta(name=account))
    )
    rules = [
        client.V1PolicyRule(api_groups=["tokenization.dev"], resources=["tokenizationcheckpoints"], verbs=["get"]),
        client.V1PolicyRule(
            api_groups=["tokenization.dev"], resources=["tokenizationcheckpoints/status"], verbs=["patch"]
        ),
    ]
    rbac.create_namespaced_role(namespace, client.V1Role(metadata=client.V1ObjectMeta(name=account), rules=rules))
    rbac.create_namespaced_role_binding(
        namespace,
        client.V1RoleBinding(
            metadata=client.V1ObjectMeta(name=account),
            role_ref=client.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name=account),
            subjects=[client.RbacV1Subject(kind="ServiceAccount", name=account, namespace=namespace)],
        ),
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "operator.log"
