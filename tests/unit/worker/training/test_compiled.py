"""Machine code is kept between processes, and compiled again where nothing can be kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import CHECKOUT

_TRAIN = """
import json, sys
from tokenization_worker.host import kept_files
if sys.argv[1] == "nowhere":
    kept_files.kept_folder = lambda name: None
from tokenization_worker.training.counting import count_pieces
from tokenization_worker.training.merging import Trainer, make_merges
from tokenization_worker.training.patterns import PieceCounter
from tokenization_worker.training.vocabulary import byte_ids
counter = PieceCounter("Gpt2", None, is_compiled=True)
counter.count([b"the cat and the hat"])
trainer = Trainer(counter.take(), byte_ids(), 3)
while not trainer.is_finished:
    trainer.step()
stats = [function.stats for function in (count_pieces, make_merges)]
print(json.dumps([
    trainer.merges.tolist(),
    sum(sum(each.cache_hits.values()) for each in stats),
    sum(sum(each.cache_misses.values()) for each in stats),
]))
"""


def train(place: str, cache: Path) -> tuple[list[list[int]], int, int]:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(CHECKOUT / "worker")}
    done = subprocess.run([sys.executable, "-c", _TRAIN, place], env=environment, stdout=subprocess.PIPE, check=True)
    merges, hits, misses = json.loads(done.stdout)
    return merges, hits, misses


@pytest.mark.exhaustive
def test_a_later_process_does_not_compile_again(tmp_path: Path) -> None:
    first, hits, misses = train("here", tmp_path)
    assert (hits, misses) == (0, 2)
    assert list((tmp_path / "tokenization").glob("compiled-*/**/*.nbc"))
    again, hits, misses = train("here", tmp_path)
    assert (hits, misses) == (2, 0)
    nowhere, hits, _ = train("nowhere", tmp_path)
    assert hits == 0
    assert first == again == nowhere
    assert len(first) == 3
