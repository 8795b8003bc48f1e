"""The session's control plane, a namespace for each test, and the chart in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from jobs import Jobs
from kubernetes import client, config
from operators import Release

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


@contextmanager
def new_namespace(bed: Testbed) -> Iterator[str]:
    """A namespace of the restricted standard, with nothing in it."""
    name = f"test-{os.getpid()}-{next(_numbers)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    yield name
    bed.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def namespace(bed: Testbed) -> Iterator[str]:
    with new_namespace(bed) as name:
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
def team(bed: Testbed, api: client.ApiClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """The jobs of a namespace whose operator works as long as the module's tests: each has a name of its own."""
    with new_namespace(bed) as name:
        release = Release(bed, api, name, tmp_path_factory.mktemp("team"))
        with release.operator() as process:
            yield Jobs(api, name)
            assert process.poll() is None
        assert not release.errors()
