"""Every way to lay tokens out, and every way to run: all files are those that a planter writes anew from the source.

The planter works in one process, token by token, and shares no code with what writes datasets. `RUNS` has each pair of
values of any two columns that can stand together.
"""

from __future__ import annotations

import json
import shutil
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.engine.inline import inline
from support.faults.plant import Planter
from support.faults.plant_rows import RowPlanter
from support.grouped_source import FORMATS, PATHS, read_groups, write_groups
from support.runs import command, files_below, make_job, read_index, run_command
from support.small_blocks import shrink_blocks
from tokenization_worker import run_job, verify
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.run.run import Options

LENGTH, SHARD_TOKENS, BLOCK, PAD = 64, 2000, 700, 60_000
FILES = {"web": [90, 0, 55], "code": [1, 150]}
SPLITS: dict[str, list[dict[str, Any]]] = {
    "one": [{"name": "train"}],
    "leading": [{"name": "test", "shards": 1}, {"name": "train"}],
    "shares": [{"name": "test", "share": "25%"}, {"name": "train"}],
}
ROWS: dict[str, dict[str, Any]] = {
    "flat": {},
    "Stream": {"scope": "Stream"},
    "File": {"scope": "File"},
    "BestFit": {"packing": "BestFit"},
    "Truncate": {"packing": "BestFit", "longDocuments": "Truncate", "maxDocuments": 3},
}
DELIMITERS: dict[str, dict[str, Any]] = {
    **{position: {"name": "gpt2", "delimiter": {"position": position}} for position in ("Before", "After", "None")},
    "Pair": {"name": "cl100k_base", "delimiter": {"begin": "<|fim_prefix|>", "end": "<|endoftext|>"}},
}


class Layout(NamedTuple):
    """What decides the bytes. `unit`: of a shuffle, "" without one."""

    rows: str
    unit: str
    splits: str
    path: str
    delimiter: str
    formats: str

    @property
    def is_possible(self) -> bool:
        """Whether a job may ask for it."""
        if self.unit == "Document":
            return self.rows in ("flat", "Stream")
        if self.unit == "Row":
            return self.rows == "Truncate" or (self.rows != "flat" and self.splits != "leading")
        return True


class Way(NamedTuple):
    """What decides no byte. `pieces`: blocks and windows, which are small in this process alone."""

    engine: str
    range_bytes: int
    pieces: str
    processes: int

    @property
    def is_possible(self) -> bool:
        return self.processes == 1 or self.pieces == "large"


LAYOUTS = [
    layout
    for layout in map(
        Layout._make, product(ROWS, ("", "Document", "Row"), SPLITS, PATHS, DELIMITERS, ("one", "several"))
    )
    if layout.is_possible
]
WAYS = [
    way
    for way in map(Way._make, product(("reference", "fastokens"), (300, 10**6), ("small", "large"), (1, 2)))
    if way.is_possible
]
RUNS = [
    (Layout("Truncate", "", "one", "joined", "None", "several"), Way("reference", 10**6, "large", 1)),
    (Layout("Stream", "Row", "shares", "apart", "Before", "one"), Way("fastokens", 300, "small", 1)),
    (Layout("flat", "Document", "leading", "apart", "After", "one"), Way("reference", 10**6, "large", 2)),
    (Layout("BestFit", "Row", "shares", "joined", "Pair", "several"), Way("fastokens", 300, "large", 2)),
    (Layout("File", "", "leading", "joined", "After", "several"), Way("reference", 300, "small", 1)),
    (Layout("flat", "Document", "one", "joined", "Pair", "one"), Way("fastokens", 300, "small", 1)),
    (Layout("File", "", "one", "apart", "Before", "several"), Way("fastokens", 10**6, "large", 2)),
    (Layout("BestFit", "Row", "shares", "apart", "None", "one"), Way("reference", 10**6, "small", 1)),
    (Layout("Stream", "Document", "leading", "joined", "None", "several"), Way("fastokens", 300, "large", 2)),
    (Layout("Truncate", "Row", "leading", "apart", "Pair", "one"), Way("reference", 10**6, "small", 1)),
    (Layout("Truncate", "", "shares", "joined", "After", "one"), Way("fastokens", 300, "large", 2)),
    (Layout("flat", "Document", "shares", "joined", "Before", "several"), Way("reference", 300, "small", 1)),
    (Layout("Stream", "Row", "one", "joined", "After", "several"), Way("reference", 10**6, "small", 1)),
    (Layout("BestFit", "", "leading", "joined", "Before", "one"), Way("fastokens", 10**6, "large", 1)),
    (Layout("File", "Row", "shares", "joined", "None", "one"), Way("fastokens", 300, "large", 1)),
    (Layout("Stream", "", "one", "apart", "Pair", "several"), Way("reference", 300, "large", 1)),
    (Layout("BestFit", "", "one", "apart", "After", "one"), Way("reference", 10**6, "small", 1)),
    (Layout("flat", "", "leading", "joined", "None", "one"), Way("reference", 300, "small", 1)),
    (Layout("Truncate", "", "shares", "joined", "Before", "several"), Way("reference", 300, "small", 1)),
    (Layout("File", "", "shares", "apart", "Pair", "one"), Way("fastokens", 10**6, "large", 1)),
]


def pairs_of(layout: Layout, way: Way) -> set[tuple[tuple[str, Any], tuple[str, Any]]]:
    return set(combinations((layout._asdict() | way._asdict()).items(), 2))


def test_runs_have_all_pairs() -> None:
    possible = set().union(*(pairs_of(layout, way) for layout, way in product(LAYOUTS, WAYS)))
    assert possible - set().union(*(pairs_of(layout, way) for layout, way in RUNS)) == set()
    assert len(RUNS) <= 20
    assert all(layout.is_possible and way.is_possible for layout, way in RUNS)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    write_groups(folder, FILES, 33, longest)
    return folder


def longest(number: int) -> int:
    """Some have more tokens than a row, and than a block."""
    return 900 if number % 23 == 11 else 150 if number % 7 == 3 else 50


def job_of(source: Path, output: Path, layout: Layout, way: Way) -> TokenizationJob:
    rows = ROWS[layout.rows]
    several = [name for name in FORMATS if rows or name != "WebDataset"]
    pad = {"pad": {"id": PAD}} if layout.delimiter == "None" else {}
    fields = {
        "formats": several if layout.formats == "several" else ["Npy"],
        "path": PATHS[layout.path],
        "splits": SPLITS[layout.splits],
        "shards": {"tokens": SHARD_TOKENS},
        **({"sequence": {"length": LENGTH, **rows, **pad}} if rows else {}),
        **({"shuffle": {"seed": 5, "unit": layout.unit}} if layout.unit else {}),
    }
    tokenizer = DELIMITERS[layout.delimiter]
    options = {"tokenizer": tokenizer, "output": fields, "rangeBytes": way.range_bytes}
    return make_job(source, output, source=read_groups(source), **options)


def written(output: Path) -> dict[str, bytes]:
    """What a dataset is: shards with all that is beside them, tables, and the index without the facts of the run."""
    own = ("_tokenization/documents/", "_tokenization/files", "_tokenization/quarantine")
    found = {
        path: (output / path).read_bytes()
        for path in files_below(output)
        if path.startswith(own) or not path.startswith("_tokenization/")
    }
    index = read_index(output)
    del index["run"]
    return found | {"index.json": json.dumps(index).encode()}


def require_planted(source: Path, folder: Path, layout: Layout, way: Way) -> None:
    job = job_of(source, folder / "out", layout, way)
    if way.processes == 1:
        run_job(job, executor=inline(), options=Options(engine=way.engine))  # type: ignore[arg-type]
    else:
        words = ("--processes", str(way.processes), "--engine", way.engine)
        done = run_command(command(job, folder / "job", *words))
        assert done.returncode == 0, done.stderr
    shutil.copytree(folder / "out", folder / "planted")
    planter = RowPlanter(folder / "planted") if ROWS[layout.rows] else Planter(folder / "planted")
    if isinstance(planter, RowPlanter) and way.pieces == "small":
        planter.block = BLOCK
    planter.write()
    mine, theirs = written(folder / "out"), written(folder / "planted")
    assert mine.keys() == theirs.keys()
    assert [path for path in mine if mine[path] != theirs[path]] == []
    for mode in ("checksums", "sample", "full"):
        assert verify(str(folder / "out"), mode=mode, processes=1, sample_one_in=3).findings == (), mode


@pytest.mark.parametrize(("layout", "way"), RUNS, ids=lambda each: "-".join(map(str, each)))
def test_files_are_those_of_a_planter(
    layout: Layout, way: Way, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way.pieces == "small":
        shrink_blocks(monkeypatch, BLOCK)
    require_planted(source, tmp_path, layout, way)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS, ids="-".join)
def test_files_of_all_layouts_are_those_of_a_planter(
    layout: Layout, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink_blocks(monkeypatch, BLOCK)
    require_planted(source, tmp_path, layout, Way("fastokens", 300, "small", 1))
