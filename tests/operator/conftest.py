"""The session's control plane, a namespace for each test, and the chart in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client, config

from support.cluster.jobs import Jobs
from support.cluster.namespaces import new_namespace
from support.cluster.operators import Release
from testbed.cluster import Testbed
from testbed.programs import Unavailable
from testbed.shared import shared_bed
from tokenization_operator.objects.kinds import Kind


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes on the control plane comes first, so that no process is left alone with it."""
    items.sort(key=lambda item: not {"testbed", "slow"} <= {mark.name for mark in item.iter_markers()})


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
    with new_namespace(api) as name:
        yield name


@pytest.fixture
def release(bed: Testbed, api: client.ApiClient, namespace: str, tmp_path: Path) -> Release:
    """The chart for that namespace, which prepares it for jobs, too."""
    return Release(bed, api, namespace, tmp_path)


@pytest.fixture
def jobs(api: client.ApiClient, namespace: str) -> Jobs:
    """Those of the namespace."""
    return Jobs(api, namespace)


@pytest.fixture(scope="module")
def staffed(
    bed: Testbed, api: client.ApiClient, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Jobs]:
    """The jobs of a namespace whose operator works as long as the module's tests, with the settings that the module has
    in `OPERATOR_OPTIONS`.
    """
    with new_namespace(api) as name:
        release = Release(bed, api, name, tmp_path_factory.mktemp("team"))
        with release.operator(**getattr(request.module, "OPERATOR_OPTIONS", {})) as process:
            yield Jobs(api, name)
            assert process.poll() is None
        assert not release.errors()


@pytest.fixture
def team(staffed: Jobs) -> Iterator[Jobs]:
    """The jobs of a test whose module shares an operator: each has a name of its own, and goes with the test."""
    yield staffed
    staffed.delete_all(Kind.JOB)
