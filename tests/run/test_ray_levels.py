"""The pipeline of `level_tasks` on a Ray cluster of real nodes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from support.engine.level_runs import ITEMS, ONE_OF_EACH, Bed, deaths_of, stops_after
from support.engine.level_tasks import MOMENTS, Vandal
from support.faults.ray_nodes import ray_nodes
from support.places import TESTS
from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.engine.ray.executor import RayCluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """Of two nodes, whose processes can import what tests import."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        with ray_nodes(2) as nodes:
            ray.init(nodes.address, log_to_driver=False)
            try:
                with RayCluster() as cluster:
                    yield cluster
            finally:
                ray.shutdown()


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


@pytest.mark.exhaustive
def test_killed_workers_cost_their_own_tasks_alone(cluster: RayCluster, bed: Bed) -> None:
    deaths = tuple(zip(ONE_OF_EACH, MOMENTS, strict=True))
    journal = bed.journal(first_deaths=deaths)
    bed.run(cluster.start, journal=journal)
    bed.require_complete()
    begun = journal.begun()
    assert {item for item, times in Counter(begun).items() if times == 2} == set(ONE_OF_EACH)
    assert (len(set(begun)), len(begun)) == (ITEMS, ITEMS + len(deaths))


@pytest.mark.exhaustive
def test_scratch_that_is_lost_workers_that_are_killed_and_stops(cluster: RayCluster, bed: Bed) -> None:
    lots = random.Random(1)
    vandal = Vandal(bed.output, 1, chance=0.2)
    deaths = deaths_of(lots, 4)
    for _ in range(50):
        stop = stops_after(lots.randrange(6, 30))
        try:
            bed.run(cluster.start, journal=bed.journal(*deaths), should_stop=stop, on_event=vandal.strike)
            break
        except Stopped:
            continue
    assert vandal.damage
    bed.require_complete()
