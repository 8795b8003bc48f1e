"""Rows that are packed by best fit: how they are cut, planned, read, stopped, repaired and verified."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from support.corpus import json_lines
from support.engine.inline import inline, run_with_stops
from support.faults.plant_rows import RowPlanter, change_of
from support.grouped_source import FORMATS, PAD, PATHS, pad_of, read_groups, tokenizer_of, write_groups
from support.row_oracle import RowShard
from support.runs import difference, make_job, read_index
from support.small_blocks import shrink_blocks
from tokenization_worker import open_dataset, run_job, verify
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.engine.task import Task
from tokenization_worker.errors import SpecError
from tokenization_worker.events import Warned
from tokenization_worker.inspect.preview import preview_run
from tokenization_worker.inspect.show import show_documents
from tokenization_worker.pipelines.tokenize.shard_builder import BuildTask
from tokenization_worker.planning import scattering

LENGTH, SHARD_TOKENS, BLOCK, MOST = 64, 2000, 700, 4
FILES = {"web": [90, 0, 55], "code": [1, 70]}
SPLITS: dict[str, list[dict[str, Any]]] = {
    "one": [{"name": "train"}],
    "shares": [{"name": "test", "share": "25%"}, {"name": "train"}],
}


class Case(NamedTuple):
    """What a dataset can have."""

    splits: str
    path: str
    delimiter: str
    most: int | None
    formats: tuple[str, ...]
    seed: int | None = None
    long: str = "Split"


IN_ORDER = Case("one", "joined", "Before", None, tuple(FORMATS))
SHUFFLED = Case("one", "joined", "After", None, tuple(FORMATS), 7)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    write_groups(folder, FILES, 33, longest)
    return folder


def longest(number: int) -> int:
    """Some are longer than a row."""
    return 900 if number % 23 == 11 else 150 if number % 7 == 3 else 50


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_blocks(monkeypatch, BLOCK)


def job_of(source: Path, output: Path, case: Case, /, **fields: Any) -> TokenizationJob:
    most = {} if case.most is None else {"maxDocuments": case.most}
    layout = {
        "formats": list(case.formats),
        "path": PATHS[case.path],
        "splits": SPLITS[case.splits],
        "sequence": {
            "length": LENGTH,
            "packing": "BestFit",
            "pad": pad_of(case.delimiter),
            "longDocuments": case.long,
            **most,
        },
        "shards": {"tokens": SHARD_TOKENS},
        **({} if case.seed is None else {"shuffle": {"seed": case.seed}}),
        **fields.pop("output", {}),
    }
    tokenizer = tokenizer_of(case.delimiter)
    return make_job(source, output, source=read_groups(source), tokenizer=tokenizer, output=layout, **fields)


def planter_of(output: Path) -> RowPlanter:
    planter = RowPlanter(output)
    planter.block = BLOCK
    return planter


@pytest.mark.parametrize("seed", [None, 7])
def test_a_document_belongs_where_its_last_token_is(
    seed: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents end with the last token of a block or of a window, and others with the token behind it. In some
    windows of a shuffle none ends."""
    monkeypatch.setattr(scattering, "LEAST_WINDOW_BYTES", 1)
    source = tmp_path / "source"
    (source / "0-web").mkdir(parents=True)
    sizes = [661, 1, 660, 662, 1, 660, 1, 1321, 2, 1985, 1983]
    window = SHARD_TOKENS // LENGTH * LENGTH
    ends = np.cumsum(sizes)
    assert {int(end) % window for end in ends} >= {0, 1, 661, 662, 1322}
    lines = [json.dumps({"text": "a" * (size - 1)}) + "\n" for size in sizes]  # and a delimiter
    (source / "0-web/0.jsonl").write_text("".join(lines))
    output = tmp_path / "out"
    run_job(job_of(source, output, Case("one", "joined", "Before", None, ("Npy",), seed)), executor=inline())
    shutil.copytree(output, tmp_path / "copy")
    planter_of(output).write()
    assert difference(output, tmp_path / "copy") is None
    assert verify(str(output), mode="full", processes=1).findings == ()


def test_no_document_is_cut_that_fits(source: Path, tmp_path: Path) -> None:
    run_job(job_of(source, tmp_path / "out", Case("shares", "apart", "After", 3, ("Npy",))), executor=inline())
    assert read_index(tmp_path / "out")["formatVersion"] == 3
    dataset = open_dataset(tmp_path / "out")
    pieces: dict[tuple[int, int], int] = {}
    for name in dataset:
        for part in dataset[name].groups.values():
            for number in range(len(part.rows)):
                parts = part.rows.parts(number)
                assert 0 < len(parts) <= 3
                for each in parts:
                    place = (int(each["file"]), int(each["position"]))
                    pieces[place] = pieces.get(place, 0) + 1
    for document in planter_of(tmp_path / "out").documents:
        assert pieces.get((document.file, document.position), 0) == -(-len(document.tokens) // LENGTH)


@pytest.mark.parametrize(("seed", "tasks"), [(None, 7), (7, 9)])
def test_stops_change_nothing(seed: int | None, tasks: int, source: Path, tmp_path: Path) -> None:
    """With `seed`, also between scattered windows."""
    case = Case("shares", "joined", "After", None, ("Npy",), seed)
    whole = tmp_path / "whole"
    run_job(job_of(source, whole, case, rangeBytes=500), executor=inline())
    assert run_with_stops(job_of(source, tmp_path / "stopped", case, rangeBytes=500), step=1) > tasks
    assert difference(tmp_path / "stopped", whole) is None


@pytest.mark.parametrize("case", [IN_ORDER, SHUFFLED], ids=["in order", "shuffled"])
def test_a_damaged_shard_is_found_and_written_again_alone(case: Case, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    run_job(job_of(source, output, case), executor=inline())
    before = {path: (path.read_bytes(), path.stat().st_ino) for path in output.rglob("*shard_*")}
    victim = output / "raw/train/shard_00001.bin"
    data = bytearray(victim.read_bytes())
    data[100] ^= 1
    victim.write_bytes(data)
    report = verify(str(output), mode="checksums", processes=1)
    assert {finding.path for finding in report.findings if finding.path} >= {"raw/train/shard_00001.bin"}
    run_job(job_of(source, output, case, rerunToken="again"), executor=inline())
    for path, (content, inode) in before.items():
        assert path.read_bytes() == content
        assert (path.stat().st_ino == inode) == (path != victim), path


@pytest.mark.parametrize(("seed", "long"), [(None, "Split"), (5, "Split"), (None, "Truncate")])
def test_rows_are_loaded_shown_and_located(seed: int | None, long: str, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    run_job(job_of(source, output, Case("shares", "apart", "Before", None, ("Npy",), seed, long)), executor=inline())
    planter = planter_of(output)
    dataset = open_dataset(output)
    documents = {(document.uri, document.position): document for document in planter.documents}
    split = dataset["train"]
    with pytest.raises(TypeError, match=r"read \.rows"):
        next(split.read_documents())
    for name, part in split.groups.items():
        stream = planter.facts.path_groups.index(name) * 2 + 1
        shards = planter.shards_of(stream)
        assert part.rows[:].tolist() == [row for shard in shards for row in shard.rows]
        for number, parts in enumerate(parts_by_row(shards)):
            assert part.rows.cu_seqlens(number).tolist() == [0, *np.cumsum([each.length for each in parts])]
            learned = part.rows.loss_mask(number)
            assert np.flatnonzero(~learned).tolist() == unlearned(parts)
        token = 0
        while token < len(part):
            if part[token] == PAD:
                token += 1
                continue
            (shown,) = show_documents(output, "train", token, group=name)
            place, whole = shown.place, documents[shown.place.uri, shown.position or 0]
            assert (shown.note, place.start) == ("", token)
            assert shown.tokens.tolist() == list(whole.tokens[place.offset : place.offset + place.tokens])
            assert place.tokens == min(LENGTH, len(whole.tokens) - place.offset)
            token += place.tokens


def parts_by_row(shards: list[RowShard]) -> list[list[Any]]:
    return [[part for part in shard.parts if part.row == row] for shard in shards for row in range(len(shard.rows))]


def unlearned(parts: list[Any]) -> list[int]:
    """Predictions of a first token of a piece that begins no document, and of padding."""
    borders = [after.start - 1 for before, after in pairwise(parts) if after.offset]
    end = parts[-1].start + parts[-1].length
    return sorted({*borders, *range(end - 1, LENGTH - 1)})


def test_plan_foresees_the_rows_and_warns_of_what_is_lost(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # small blocks and shards leave more room
    loose, short = "raise maxDocuments", "will leave out"
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"length": 250}, []),
        ({"length": 250, "maxDocuments": 2}, [loose]),
        ({"length": 250, "longDocuments": "Truncate"}, [short]),
        ({"length": 800, "longDocuments": "Truncate"}, []),  # less than a tenth
    ]
    for number, (sequence, warned) in enumerate(cases):
        output, events = tmp_path / str(number), []
        layout = {
            "sequence": {"packing": "BestFit", "pad": {"id": PAD}, **sequence},
            "shards": {"tokens": 10_000},
        }
        job = job_of(source, output, IN_ORDER, output=layout)
        plan = preview_run(job)
        run_job(job, executor=inline(), on_progress=events.append)
        expected, found = plan.rows, preview_run(job).rows
        assert plan.shards == sum(split["shards"] for split in read_index(output)["splits"])
        assert expected is not None
        assert found is not None
        assert abs(expected.count - found.count) <= 0.05 * found.count
        assert (found.truncated > 0) == ("longDocuments" in sequence)
        assert abs(expected.truncated - found.truncated) <= 0.05 * found.truncated
        warnings = [str(each) for each in events if isinstance(each, Warned)]
        assert [words for words in (loose, short) if any(words in each for each in warnings)] == warned
        assert (found.utilization < 0.5) == (loose in warned)


@pytest.mark.parametrize(("count", "off"), [(100, 0.02), (600, 0.07)])
def test_plan_knows_the_rows_of_what_it_has_encoded(count: int, off: float, tmp_path: Path) -> None:
    """Three of these documents fill a row; by their characters the longer ones would not. Of 600 a part is encoded."""
    texts = [f"hello {number} " * 20 for number in range(count)]
    (tmp_path / "a.jsonl").write_bytes(json_lines(texts))
    layout = {"sequence": {"packing": "BestFit", "length": 128}}
    job = make_job(tmp_path / "a.jsonl", tmp_path / "out", output=layout)
    expected = preview_run(job).rows
    run_job(job, executor=inline())
    found = preview_run(job).rows
    assert expected is not None
    assert found is not None
    assert abs(expected.count - found.count) <= off * found.count


def test_plan_foresees_what_a_shuffle_needs(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One document a row, so that most of what is scattered is padding."""
    monkeypatch.undo()
    case = Case("one", "joined", "Before", 1, ("Npy",), 7, "Truncate")
    layout = {"shards": {"sequences": 100}, "splits": [{"name": "test", "shards": 1}, {"name": "train"}]}
    job = job_of(source, tmp_path / "out", case, output=layout)
    sizes = []

    def look(task: Task) -> None:
        scattered = (tmp_path / "out").rglob("scattered/*/*")
        sizes.extend(path.stat().st_size for path in scattered if isinstance(task, BuildTask))

    plan = preview_run(job)
    run_job(job, executor=inline(look))
    assert plan.shuffle is not None
    assert plan.rows is not None
    assert plan.shuffle.windows == len(set(sizes)) == 1
    assert plan.scratch_bytes is not None
    assert 0.9 * max(sizes) < plan.scratch_bytes < 1.5 * max(sizes)
    assert plan.shuffle.window_bytes == plan.rows.tokens * 2
    assert plan.shuffle.slot_bytes > plan.shuffle.window_bytes
    assert plan.shards == sum(split["shards"] for split in read_index(tmp_path / "out")["splits"]) == 3


def test_small_blocks_leave_the_room_that_the_plan_foresees(source: Path, tmp_path: Path) -> None:
    """They have a few documents each."""
    job = job_of(source, tmp_path / "out", IN_ORDER, output={"shards": {"tokens": 1000}})
    plan = preview_run(job)
    run_job(job, executor=inline())
    found = preview_run(job).rows
    assert plan.rows is not None
    assert found is not None
    assert found.utilization < 0.94
    assert abs(plan.rows.utilization - found.utilization) < 0.015


def test_a_shard_in_which_no_document_ends_is_refused(source: Path, tmp_path: Path) -> None:
    job = job_of(source, tmp_path / "out", IN_ORDER, output={"shards": {"tokens": 128}})
    events: list[Any] = []
    with pytest.raises(SpecError) as caught:
        run_job(job, executor=inline(), on_progress=events.append)
    assert (caught.value.reason, "no document that ends in it" in caught.value.message) == ("ShardEmpty", True)
    assert any(isinstance(each, Warned) and "documents.maxBytes allows about" in str(each) for each in events)


# ---- verify


def swap_rows(shards: list[RowShard]) -> None:
    shard = shards[0]
    shard.rows[1], shard.rows[3] = shard.rows[3], shard.rows[1]
    order = {1: 3, 3: 1}
    moved = [part._replace(row=order.get(part.row, part.row)) for part in shard.parts]
    shard.parts[:] = sorted(moved, key=lambda part: (part.row, part.start))


def move_a_part(shards: list[RowShard]) -> None:
    """The last document of a row with two goes to the end of a row that has room for it, behind documents that are
    before it in the source."""
    shard = shards[0]
    rows = parts_by_row([shard])
    for number, parts in enumerate(rows):
        last = parts[-1]
        for other, theirs in enumerate(rows):
            end = theirs[-1].start + theirs[-1].length
            is_behind = theirs[-1].position < last.position and theirs[-1].file <= last.file
            is_free = end + last.length <= LENGTH and len(theirs) < MOST
            if len(parts) > 1 and other != number and is_behind and is_free:
                tokens = shard.rows[number][last.start : last.start + last.length]
                shard.rows[number][last.start :] = [PAD] * (LENGTH - last.start)
                shard.rows[other][end : end + last.length] = tokens
                shard.parts.remove(last)
                shard.parts.append(last._replace(row=other, start=end))
                shard.parts.sort(key=lambda part: (part.row, part.start))
                return
    raise AssertionError("no row has room for another row's last document")


def cut_a_document(planter: RowPlanter) -> None:
    planter.is_cut = lambda size: size == 40


def leave_one_out(planter: RowPlanter) -> None:
    del planter.documents[3]


def pack_larger_windows(planter: RowPlanter) -> None:
    planter.more_window = 900
    planter.block = 3000


def pack_larger_blocks(planter: RowPlanter) -> None:
    planter.block = 2000


def pack_more(planter: RowPlanter) -> None:
    planter.most = None


def keep_the_rest(planter: RowPlanter) -> None:
    number = next(number for number, document in enumerate(planter.documents) if document.rest)
    document = planter.documents[number]
    planter.documents[number] = replace(document, tokens=document.tokens + document.rest, rest=())


def count_more(planter: RowPlanter) -> None:
    planter.documents[0] = replace(planter.documents[0], rest=(1,))


def shuffle_otherwise(planter: RowPlanter) -> None:
    planter.seed = 8


Faults = dict[str, tuple[Callable[[RowPlanter], None], set[str], set[str]]]

FAULTS: Faults = {  # what is planted, the faults that every mode finds, and those that `full` adds
    "two rows swapped": (change_of(swap_rows), {"PartsWrong"}, set()),
    "a document cut that fits": (cut_a_document, {"PartsWrong"}, set()),
    "a part moved": (change_of(move_a_part), {"PartsWrong"}, set()),
    "a document left out": (leave_one_out, set(), {"FileCounts", "DocumentLost"}),
    "windows of another size": (pack_larger_windows, {"PartsWrong"}, set()),
    "blocks of another size": (pack_larger_blocks, {"PartsWrong"}, set()),
}
SHUFFLED_FAULTS: Faults = {
    "two rows swapped": (change_of(swap_rows), {"OrderWrong"}, set()),
    "a document cut that fits": (cut_a_document, {"PartsWrong", "DelimiterWrong"}, set()),
    "a part moved": (change_of(move_a_part), set(), {"PartsWrong"}),
    "a document left out": (leave_one_out, set(), {"FileCounts", "DocumentLost"}),
    "blocks of another size": (pack_larger_blocks, set(), {"PartsWrong"}),
    "another seed": (shuffle_otherwise, {"OrderWrong"}, set()),
    "more parts in a row": (pack_more, {"PartsWrong"}, set()),
}
TRUNCATED_FAULTS: Faults = {
    "a long document that is not cut off": (keep_the_rest, {"PartsWrong"}, {"FileCounts", "TokensDiffer"}),
    "a count of what is cut off": (count_more, set(), {"FileCounts"}),
    "a part moved": (change_of(move_a_part), {"PartsWrong"}, set()),
}
PLANTED = {"in order": FAULTS, "shuffled": SHUFFLED_FAULTS, "truncated": TRUNCATED_FAULTS}


@pytest.fixture(scope="module")
def written(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Datasets of `PLANTED`."""
    folder = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patch:
        shrink_blocks(patch, BLOCK)
        for name, seed, long in (
            ("in order", None, "Split"),
            ("shuffled", 7, "Split"),
            ("truncated", None, "Truncate"),
        ):
            case = Case("one", "joined", "After", MOST, ("Npy", "Raw"), seed, long)
            run_job(job_of(source, folder / name, case), executor=inline())
    return {name: folder / name for name in PLANTED}


@pytest.mark.parametrize(("name", "fault"), [(name, fault) for name, faults in PLANTED.items() for fault in faults])
def test_verify_names_what_was_planted_with_all_checksums_recomputed(
    name: str, fault: str, written: dict[str, Path], tmp_path: Path
) -> None:
    plant, everywhere, from_source = PLANTED[name][fault]
    output = tmp_path / "out"
    shutil.copytree(written[name], output)
    planter = planter_of(output)
    plant(planter)
    planter.write()
    for mode in ("checksums", "full"):
        report = verify(str(output), mode=mode, processes=1)
        found = {str(finding.fault) for finding in report.findings}
        assert found == everywhere | (from_source if mode == "full" else set()), (mode, report.findings)
