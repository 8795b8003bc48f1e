"""Cells of the table of `sources_in_motion`: a real run, stopped at a moment, whose file is changed under it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.faults.sources_in_motion import Cell, Format, Moment, Motion, Place, Way, cells_of, command, prepare_motion
from support.runs import run_command

pytestmark = pytest.mark.slow

RARE = {
    Cell(Place.LOCAL, Format.GZIP, Way.STEALTHILY, Moment.FIRST_RANGE),
    Cell(Place.LOCAL, Format.JSONL, Way.STEALTHILY, Moment.INDEX),
    Cell(Place.LOCAL, Format.PARQUET, Way.RENAME, Moment.INDEX),
    Cell(Place.LOCAL, Format.JSONL, Way.CUT, Moment.LAST_RANGE),
}
"""Always part of `make test`."""


@pytest.fixture(scope="module")
def motion(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Motion]:
    with prepare_motion(tmp_path_factory.mktemp("motion")) as motion:
        yield motion


def kind_of(parameters: dict[str, object]) -> object:
    cell = parameters["cell"]
    return cell if cell in RARE else None


@pytest.mark.sampled(71, of=kind_of)
@pytest.mark.parametrize("cell", cells_of(), ids=lambda cell: "-".join(cell))
def test_no_change_of_a_source_is_committed(cell: Cell, motion: Motion) -> None:
    motion.run(cell, cells_of().index(cell))


def test_the_cells_that_are_always_tested_are_in_the_table() -> None:
    assert set(cells_of()) >= RARE


def test_the_table_has_every_way_and_moment_for_every_format_and_place() -> None:
    places = {place: len([cell for cell in cells_of() if cell.place is place]) for place in Place}
    assert places == {Place.LOCAL: 6 * 6 * 3, Place.GCS: 5 * 6 * 3}


def test_variants_are_whole_files(motion: Motion, tmp_path: Path) -> None:
    """Nothing but the change itself may stop a run."""
    for format, variants in motion.variants.items():
        for name, data in variants._asdict().items():
            path = tmp_path / f"{name}.{format}"
            path.write_bytes(data)
            done = run_command(command(str(path), tmp_path / f"{name}-{format}"))
            assert done.returncode == 0, done.stderr
