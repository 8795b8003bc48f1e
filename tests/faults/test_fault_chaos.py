"""Whatever script of faults a run meets, it ends with the same bytes. `make chaos` runs many more scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.faults.fault_chaos import LAYOUTS, run_fault_chaos
from support.stores.gcs_emulator import gcs_host

__all__ = ["gcs_host"]

# The client library leaves the connection of a download that failed to the garbage collector.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

SCRIPTS = 20


@pytest.mark.exhaustive
@pytest.mark.parametrize("layout", LAYOUTS)
def test_runs_through_random_faults_end_with_the_bytes_of_one_without(
    gcs_host: str, layout: str, tmp_path: Path
) -> None:
    lines: list[str] = []
    summary = run_fault_chaos(gcs_host, tmp_path, faults=SCRIPTS, seed=20261121, layout=layout, say=lines.append)
    print("\n".join([*lines, *summary.lines()]))
    assert summary.scripts == SCRIPTS
    assert summary.met.total() > SCRIPTS, "most faults must hurt a call"
