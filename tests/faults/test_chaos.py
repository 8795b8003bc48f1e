"""Killed at any moment, a run is finished by the same command: the same bytes, and little done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.faults.chaos import LAYOUTS, aims_of, run_chaos

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

KILLS = 12


@pytest.mark.parametrize("layout", LAYOUTS)
def test_killed_runs_end_with_the_bytes_of_an_uninterrupted_run(tmp_path: Path, layout: str) -> None:
    lines: list[str] = []
    summary = run_chaos(tmp_path, kills=KILLS, seed=20261121, size=0.5, say=lines.append, layout=LAYOUTS[layout])
    print("\n".join([*lines, *summary.lines()]))
    assert summary.kills >= KILLS
    assert all(summary.hit[aim] for aim in aims_of(has_shuffle="shuffle" in LAYOUTS[layout])), (
        "every aim must hit at least once"
    )
    assert summary.lost_ranges <= 4 * summary.kills
