"""A shuffled job on a real node, whose workers are killed while they scatter and while they build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.faults import kill_pod
from e2e.node import RealCluster
from e2e.runs import NAME, RANGE_BYTES, RUN_S, SHARD_TOKENS, TOKENIZER, TOO_LATE, Team
from e2e.steps import step
from support.cluster.jobs import wait_for
from support.engine.inline import inline
from support.runs import make_job
from tokenization_worker import run_job
from tokenization_worker.storage.open import open_store

pytestmark = pytest.mark.e2e

ROWS: dict[str, Any] = {"sequence": {"length": 2049}, "shuffle": {"seed": 3}}


@pytest.fixture(scope="module")
def shuffled(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same job's dataset on a local disk, without any cluster."""
    with step("shuffle the corpus here, for comparison"):
        output = tmp_path_factory.mktemp("shuffled") / "out"
        layout = {"shards": {"tokens": SHARD_TOKENS}, **ROWS}
        spec = {"tokenizer": TOKENIZER, "output": layout, "rangeBytes": RANGE_BYTES}
        run_job(make_job(corpus, output, spec), executor=inline())
    return output


def count(team: Team, folder: str) -> int:
    """Receipts of scattered objects, or of shards."""
    found = open_store(team.uri()).list("_tokenization/ledger/")
    return sum(f"/{folder}/" in entry.path for entry in found)


def wait_until_done(team: Team, folder: str, least: int) -> None:
    with step(f"reach {least} receipts in {folder}"):
        wait_for(lambda: count(team, folder), lambda done: done >= least, RUN_S)
    assert not team.is_committed(), TOO_LATE


def test_workers_are_killed_while_they_scatter_and_while_they_build(
    cluster: RealCluster, team: Team, shuffled: Path
) -> None:
    spec = team.spec()
    spec["output"] |= ROWS
    team.jobs.apply(NAME, spec)
    wait_until_done(team, "scatters", 2)
    assert not count(team, "shards"), TOO_LATE
    kill_pod(cluster, team, "worker")
    wait_until_done(team, "shards", 5)
    kill_pod(cluster, team, "worker")
    with step("reach Succeeded"):
        status = team.succeed(NAME)
    assert status["attempt"]["number"] == 1
    team.prove(shuffled)
