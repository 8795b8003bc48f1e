"""Shuffled rows, and rows of shuffled documents: how they are read, stopped and verified."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.engine.inline import inline, run_with_stops
from support.faults.plant_rows import RowPlanter, change_of
from support.grouped_source import PAD, PATHS, pad_of, read_groups, tokenizer_of, write_groups
from support.row_oracle import RowShard
from support.runs import difference, make_job
from tokenization_worker import open_dataset, run_job, verify
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.inspect.show import show_documents
from tokenization_worker.planning import scattering

LENGTH, SHARD_ROWS = 64, 5
FILES = {"web": [40, 0, 25], "code": [1, 60], "books": [30]}
SPLITS: dict[str, list[dict[str, Any]]] = {
    "one": [{"name": "train"}],
    "shares": [{"name": "test", "share": "25%"}, {"name": "train"}],
}


class Case(NamedTuple):
    """What a dataset can have; `unit` and `scope` decide what else."""

    unit: str
    scope: str
    splits: str
    path: str
    delimiter: str
    formats: tuple[str, ...]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    write_groups(folder, FILES, 31, longest)
    return folder


def longest(number: int) -> int:
    """Some are longer than a window."""
    return 4000 if number % 23 == 11 else 300 if number % 7 == 3 else 60


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scattering, "LEAST_WINDOW_BYTES", 2000)


def job_of(source: Path, output: Path, case: Case, /, **fields: Any) -> TokenizationJob:
    layout = {
        "formats": list(case.formats),
        "path": PATHS[case.path],
        "splits": SPLITS[case.splits],
        "sequence": {"length": LENGTH, "scope": case.scope, "pad": pad_of(case.delimiter)},
        "shards": {"sequences": SHARD_ROWS},
        "shuffle": {"seed": 5, "unit": case.unit},
    }
    tokenizer = tokenizer_of(case.delimiter)
    return make_job(source, output, source=read_groups(source), tokenizer=tokenizer, output=layout, **fields)


@pytest.mark.parametrize("unit", ["Row", "Document"])
def test_rows_are_loaded_shown_and_located(unit: str, source: Path, tmp_path: Path) -> None:
    case = Case(unit, "Stream", "shares", "apart", "Before", ("Npy", "WebDataset"))
    output = tmp_path / "out"
    run_job(job_of(source, output, case), executor=inline())
    planter = RowPlanter(output)
    dataset = open_dataset(output)
    documents = {(document.uri, document.position): document for document in planter.documents}
    split = dataset["train"]
    if unit == "Row":
        with pytest.raises(TypeError, match=r"read \.rows"):
            next(split.read_documents())
    for name, part in split.groups.items():
        stream = planter.facts.path_groups.index(name) * 2 + 1
        rows = [row for shard in planter.shards_of(stream) for row in shard.rows]
        assert part.rows[:].tolist() == rows
        token = shown_documents = 0
        while token < len(part):
            if part[token] == PAD:
                token += 1
                continue
            (shown,) = show_documents(output, "train", token, group=name)
            place = shown.place
            whole = documents[place.uri, shown.position or 0]
            assert shown.note == ""
            assert shown.tokens.tolist() == list(whole.tokens[place.offset : place.offset + place.tokens])
            assert place.tokens == len(whole.tokens) or unit == "Row"
            assert shown.text == bytes(shown.tokens[0 if place.offset else 1 :].tolist()).decode(errors="replace")
            token = place.start + place.tokens
            shown_documents += place.offset == 0
        assert shown_documents == sum(
            document.stream == stream and len(document.tokens) > 0 for document in documents.values()
        )


def test_stops_change_nothing(source: Path, tmp_path: Path) -> None:
    case = Case("Row", "File", "shares", "apart", "After", ("WebDataset",))
    whole = tmp_path / "whole"
    run_job(job_of(source, whole, case, rangeBytes=500), executor=inline())
    tasks = run_with_stops(job_of(source, tmp_path / "stopped", case, rangeBytes=500), step=4)
    assert tasks > 9
    assert difference(tmp_path / "stopped", whole) is None


# ---- verify


def swap_rows(shards: list[RowShard]) -> None:
    exchange(shards, (0, 1), (0, 3))


def swap_shards(shards: list[RowShard]) -> None:
    exchange(shards, (0, 4), (1, 0))


def double_a_row(shards: list[RowShard]) -> None:
    shard = shards[0]
    shard.rows[2] = shard.rows[1]
    put_parts(shard, 2, [part for part in shard.parts if part.row == 1])


def exchange(shards: list[RowShard], one: tuple[int, int], other: tuple[int, int]) -> None:
    """Two rows, each given by its shard and its number there, in each other's place."""
    (a, row), (b, other_row) = one, other
    mine = [part for part in shards[a].parts if part.row == row]
    theirs = [part for part in shards[b].parts if part.row == other_row]
    shards[a].rows[row], shards[b].rows[other_row] = shards[b].rows[other_row], shards[a].rows[row]
    put_parts(shards[a], row, theirs)
    put_parts(shards[b], other_row, mine)


def put_parts(shard: RowShard, row: int, parts: list[Any]) -> None:
    shard.parts[:] = sorted(
        [part for part in shard.parts if part.row != row] + [part._replace(row=row) for part in parts],
        key=lambda part: (part.row, part.start),
    )


def exchange_ends(shards: list[RowShard]) -> None:
    """Two rows have each other's last documents, which begin at the same token of their rows."""
    starts: dict[int, tuple[RowShard, Any]] = {}
    for shard in shards:
        lasts = {part.row: part for part in shard.parts}
        for row, part in lasts.items():
            if not part.start or part.start + part.length < LENGTH:
                continue
            other_shard, other = starts.setdefault(part.start, (shard, part))
            if (other_shard, other) == (shard, part):
                continue
            tail, other_tail = shard.rows[row][part.start :], other_shard.rows[other.row][part.start :]
            shard.rows[row][part.start :], other_shard.rows[other.row][part.start :] = other_tail, tail
            shard.parts[shard.parts.index(part)] = other._replace(row=row)
            other_shard.parts[other_shard.parts.index(other)] = part._replace(row=other.row)
            return
    raise AssertionError("no two rows end with documents that begin at one token")


def use_another_seed(planter: RowPlanter) -> None:
    planter.seed = 6


def cut_elsewhere(planter: RowPlanter) -> None:
    planter.cut_early = 1


def leave_one_out(planter: RowPlanter) -> None:
    del planter.documents[3]


FAULTS: dict[str, tuple[Callable[[RowPlanter], None], set[str], set[str]]] = {
    # what is planted, the faults that every mode finds, and those that `full` adds
    "two rows swapped": (change_of(swap_rows), {"OrderWrong"}, set()),
    "two rows of two shards swapped": (change_of(swap_shards), {"OrderWrong"}, set()),
    "a row twice": (change_of(double_a_row), {"OrderWrong", "FileCounts"}, {"DocumentDoubled", "TokensDiffer"}),
    "a document left out": (leave_one_out, set(), {"FileCounts", "DocumentLost"}),
    "another seed": (use_another_seed, {"OrderWrong"}, set()),
    "ends of rows exchanged": (change_of(exchange_ends), {"PartsWrong"}, set()),
    "rows cut one token earlier": (cut_elsewhere, set(), {"RowsDiffer"}),
}


@pytest.fixture(scope="module")
def written(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("written") / "out"
    case = Case("Row", "Stream", "one", "joined", "After", ("Npy", "WebDataset"))
    run_job(job_of(source, output, case), executor=inline())
    return output


@pytest.mark.parametrize("fault", FAULTS)
def test_verify_names_what_was_planted_with_all_checksums_recomputed(fault: str, written: Path, tmp_path: Path) -> None:
    plant, everywhere, from_source = FAULTS[fault]
    output = tmp_path / "out"
    shutil.copytree(written, output)
    planter = RowPlanter(output)
    plant(planter)
    planter.write()
    for mode in ("checksums", "full"):
        report = verify(str(output), mode=mode, processes=1)
        found = {str(finding.fault) for finding in report.findings}
        assert found == everywhere | (from_source if mode == "full" else set()), (mode, report.findings)
