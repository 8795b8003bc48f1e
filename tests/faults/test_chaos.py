"""Killed at any moment, a run is finished by the same command: the same bytes, and little done twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.faults.chaos import AIMED, FLAT, ROWS, run_chaos

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

KILLS = 10


@pytest.mark.parametrize("layout", [FLAT, ROWS], ids=["tokens", "rows in four formats"])
def test_killed_runs_end_with_the_bytes_of_an_uninterrupted_run(tmp_path: Path, layout: dict[str, Any]) -> None:
    lines: list[str] = []
    summary = run_chaos(tmp_path, kills=KILLS, seed=20261121, size=0.5, say=lines.append, layout=layout)
    print("\n".join([*lines, *summary.lines()]))
    assert summary.kills >= KILLS
    assert all(summary.hit[aim] for aim in AIMED), "every aim must hit at least once"
    assert summary.lost_ranges <= 4 * summary.kills
