"""A bit that flips anywhere in an output is refused by name, healed or harmless: a sample of `make flips`."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.faults.flip_answers import ask
from support.faults.flip_states import FINISHED, World
from support.faults.flips import OUTCOMES, Flip, Summary, judge, run_flips

pytestmark = pytest.mark.slow

FLIPS = 40


@pytest.mark.exhaustive
def test_no_flipped_bit_is_accepted_in_silence(tmp_path: Path) -> None:
    summary = Summary(list(run_flips(tmp_path / "world", range(FLIPS), seed=20261122)))
    print("\n".join(summary.lines()))
    assert len(summary.judged) == FLIPS
    assert [f"{one.outcome}: {one.flip}: {one.detail}" for one in summary.failures] == []
    assert {one.outcome for one in summary.judged} >= set(OUTCOMES), "not every outcome is met"


def test_a_reader_that_believes_everything_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script itself: what it would say of an index that nobody checks."""
    world = World(tmp_path / "world")
    truth = ask(world)
    index = (tmp_path / "world" / FINISHED / "index.json").read_bytes()
    at = index.index(b'"textBytes":') + len(b'"textBytes":')
    flip = Flip(FINISHED, "index", "index.json", 8 * at, keeps_time=True)
    assert judge(world, truth, flip).outcome == "refused"
    monkeypatch.setattr("tokenization_worker.output.index.checksum_in", lambda index: None)
    judged = judge(world, truth, flip)
    assert (judged.outcome, judged.detail) == ("SILENT", "verify checksums finds nothing")
