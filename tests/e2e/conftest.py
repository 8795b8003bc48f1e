"""The cluster that `python -m e2e` has started, the chart on it, and a namespace, a bucket and a corpus for a test."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from kubernetes import client, config

from e2e.images import Image
from e2e.inside import FOLDER_VARIABLE, IMAGES_VARIABLE, images_of
from e2e.node import STORE, RealCluster
from e2e.release import NAMESPACE, Release, Version
from e2e.runs import CORPUS_FILES, RANGE_BYTES, SHARD_TOKENS, TOKENIZER, Team
from e2e.steps import note, step
from support.cluster.jobs import Jobs
from support.cluster.operators import CHART
from support.corpus import json_lines, take_documents, zstd_frames
from support.engine.inline import inline
from support.objects import upload
from support.runs import make_job
from support.stores.gcs_emulator import make_bucket
from testbed.programs import find_node_programs, find_programs
from tokenization_worker import run_job

_NAMESPACES = count(1)
_FILE_BYTES = 4_000_000


@pytest.fixture(autouse=True)
def told(request: pytest.FixtureRequest) -> Iterator[None]:
    """What is being tested, and for how long."""
    began = time.monotonic()
    note(f"== {request.node.name}")
    yield
    note(f"== {request.node.name}: {time.monotonic() - began:.0f} s")


@pytest.fixture(scope="session")
def cluster() -> Iterator[RealCluster]:
    """The one of the sandbox."""
    cluster = RealCluster(Path(os.environ[FOLDER_VARIABLE]), find_programs(), find_node_programs())
    cluster.join()
    yield cluster
    cluster.processes.stop_own()  # what tests have started again


@pytest.fixture(scope="session")
def api(cluster: RealCluster) -> client.ApiClient:
    """As an administrator."""
    return config.new_client_from_config(str(cluster.kubeconfig))


@pytest.fixture(scope="session")
def images() -> dict[str, Image]:
    """Our images by their targets of the Dockerfile."""
    found = images_of(os.environ[IMAGES_VARIABLE].split())
    return {image.target: image for image in found if image.target}


@pytest.fixture(scope="session")
def version(images: dict[str, Image]) -> Version:
    """That of this tree."""
    return Version(CHART, images["operator"].name, images["worker"].name)


@pytest.fixture(scope="session")
def release(cluster: RealCluster, version: Version) -> Release:
    """The chart, whose operator watches all namespaces."""
    release = Release(cluster, version)
    with step("install the chart"):
        release.install()
    return release


@pytest.fixture(scope="session")
def store() -> Iterator[str]:
    """The address of the object store, which `gs://` means in this process, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", STORE)
        yield STORE


@pytest.fixture(scope="session")
def corpus(store: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real text in compressed files."""
    folder = tmp_path_factory.mktemp("corpus")
    texts = take_documents(CORPUS_FILES * _FILE_BYTES)
    each = -(-len(texts) // CORPUS_FILES)
    for number in range(CORPUS_FILES):
        part = texts[number * each : (number + 1) * each]
        (folder / f"{number:02}.jsonl.zst").write_bytes(zstd_frames(json_lines(part, first_id=number * each)))
    return folder


@pytest.fixture(scope="session")
def expected(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same job's dataset on a local disk, without any cluster."""
    with step("tokenize the corpus here, for comparison"):
        output = tmp_path_factory.mktemp("local") / "out"
        spec = {"tokenizer": TOKENIZER, "output": {"shards": {"tokens": SHARD_TOKENS}}, "rangeBytes": RANGE_BYTES}
        run_job(make_job(corpus, output, spec), executor=inline())
    return output


@pytest.fixture
def new_team(
    cluster: RealCluster, release: Release, api: client.ApiClient, corpus: Path, store: str
) -> Iterator[Callable[[], Team]]:
    """Makes a namespace that is prepared for jobs, and a bucket with the corpus."""
    teams: list[Team] = []

    def make() -> Team:
        name = f"team-{next(_NAMESPACES)}"
        release.prepare(name)
        bucket = make_bucket(store)
        upload(corpus, f"gs://{bucket}/corpus")
        teams.append(Team(Jobs(api, name), bucket))
        return teams[-1]

    yield make
    for team in teams:
        keep(cluster, team.jobs.namespace)
        team.clear()


@pytest.fixture
def team(new_team: Callable[[], Team]) -> Team:
    """One of them."""
    return new_team()


def keep(cluster: RealCluster, namespace: str) -> None:
    """What there is in a namespace, and what its Pods have said, for somebody who looks at the logs later."""
    folder = cluster.folder / "kept" / namespace
    folder.mkdir(parents=True)
    for name in ("pods", "events", "tkj,tkc,rayjobs,rayclusters"):
        found = cluster.kubectl("get", name, "--namespace", namespace, "-o", "yaml")
        (folder / f"{name.partition(',')[0]}.yaml").write_text(found.stdout + found.stderr, encoding="utf-8")
    for pod in cluster.pod_logs.glob(f"{namespace}_*"):
        for log in pod.rglob("*.log"):
            target = folder / pod.name / log.relative_to(pod)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log, target)


@pytest.fixture(scope="session", autouse=True)
def kept_operator(cluster: RealCluster) -> Iterator[None]:
    """The namespace of the operator at the end, beside those of the tests."""
    yield
    keep(cluster, NAMESPACE)
