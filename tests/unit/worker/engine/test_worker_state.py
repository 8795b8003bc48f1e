"""What a worker keeps between tasks, and that the engine does not know what it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tokenization_worker import engine
from tokenization_worker.engine.task import WorkerState


class Cache:
    pass


class Other:
    pass


def test_tasks_of_one_worker_find_what_an_earlier_one_kept() -> None:
    worker = WorkerState("here")
    kept = worker.keep(Cache)
    assert worker.keep(Cache) is kept


def test_each_type_and_each_worker_has_an_object_of_its_own() -> None:
    worker = WorkerState("here")
    assert isinstance(worker.keep(Other), Other)
    assert isinstance(worker.keep(Cache), Cache)
    assert WorkerState("here").keep(Cache) is not worker.keep(Cache)


OF_A_PIPELINE = re.compile(r"range_|ranges|Range[A-Z]|shard|segment|decoder|tokeniz(?!ation_worker)", re.IGNORECASE)
MODULES = sorted(Path(engine.__path__[0]).rglob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_the_engine_has_no_word_of_any_pipeline(module: Path) -> None:
    assert [line for line in module.read_text().splitlines() if OF_A_PIPELINE.search(line)] == []
