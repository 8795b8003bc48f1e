"""`tokjob report`: what rows of some lengths hold, counted by naive programs from the source."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from support.engine.inline import inline
from support.faults.plant import Planter
from support.forked_commands import TOKJOB
from support.row_oracle import Document, pack
from support.runs import make_job, run_command
from tokenization_worker import run_job
from tokenization_worker.errors import SpecError
from tokenization_worker.inspect.length_report import report_lengths

SPLITS: dict[str, list[dict[str, Any]]] = {
    "leading": [{"name": "test", "shards": 3}, {"name": "train"}],
    "shares": [{"name": "test", "share": "25%"}, {"name": "train"}],
}


def write_source(folder: Path, sizes: list[int]) -> None:
    """A document of so many letters each, each of them a token."""
    folder.mkdir(parents=True)
    lines = [json.dumps({"text": "a" * size}) + "\n" for size in sizes]
    (folder / "0.jsonl").write_text("".join(lines))


def test_the_table_of_a_few_documents(tmp_path: Path) -> None:
    """82 tokens and 8 end tokens: cut and padded 74 of 128 slots are used, one after the other 90 of 96."""
    sizes = [29, 17, 3, 5, 6, 7, 8, 7]
    assert (len(sizes), sum(sizes)) == (8, 82)
    write_source(tmp_path / "source", sizes)
    tokenizer = {"name": "bytes", "delimiter": {"position": "After"}}
    run_job(make_job(tmp_path / "source", tmp_path / "out", tokenizer=tokenizer), executor=inline())
    done = run_command([str(TOKJOB), "report", str(tmp_path / "out"), "--lengths", "16"])
    assert done.returncode == 0, done.stderr
    assert [" ".join(line.split()) for line in done.stdout.splitlines()[1:]] == [
        "8 documents, 90 tokens with their delimiters",
        "length packing rows full tokens dropped documents cut",
        "16 Padded 8 57.8% 16 (17.8%) 2 (25.0%)",
        "16 Concat 6 93.8% 0 4 (50.0%)",
        "16 BestFit 6 93.8% 0 2 (25.0%)",
    ]
    done = run_command([str(TOKJOB), "report", str(tmp_path / "out"), "--lengths", "16,100", "--json"])
    found = json.loads(done.stdout)
    assert (found["documents"], found["tokens"]) == (8, 90)
    assert [(each["length"], each["packing"]) for each in found["rows"]] == [
        (length, packing) for length in (16, 100) for packing in ("Padded", "Concat", "BestFit")
    ]
    assert found["rows"][0]["utilization"] == 74 / 128
    done = run_command([str(TOKJOB), "report", str(tmp_path / "out"), "--lengths", "16,1"])
    assert (done.returncode, "lengths of at least 2" in done.stderr) == (2, True)


@pytest.mark.parametrize("delimiter", ["Before", "None"])
@pytest.mark.parametrize("splits", SPLITS)
def test_numbers_are_those_of_naive_programs(splits: str, delimiter: str, tmp_path: Path) -> None:
    """Documents straddle shards, some of them several; splits by share are streams of their own."""
    chance = random.Random(5)
    write_source(tmp_path / "source", [chance.choice([0, 3, 20, 50, 120, 600]) for _ in range(60)])
    tokenizer = {"name": "bytes", "delimiter": {"position": delimiter}}
    layout = {"splits": SPLITS[splits], "shards": {"tokens": 250}}
    run_job(make_job(tmp_path / "source", tmp_path / "out", tokenizer=tokenizer, output=layout), executor=inline())
    planter = Planter(tmp_path / "out")
    streams = [
        [len(document.tokens) for document in planter.in_stream(stream) if len(document.tokens)]
        for stream in range(len(planter.facts.streams))
    ]
    report = report_lengths(tmp_path / "out", [32, 100])
    assert (report.documents, report.tokens) == (sum(map(len, streams)), sum(map(sum, streams)))
    for each in report.rows:
        counted = [naive(each.packing, sizes, each.length) for sizes in streams]
        expected = tuple(map(sum, zip(*counted, strict=True)))
        assert (each.rows, each.tokens, each.dropped, each.cut) == expected, each


def naive(packing: str, sizes: list[int], length: int) -> tuple[int, int, int, int]:
    """Rows, tokens in them, tokens in none, and documents that are cut."""
    total = sum(sizes)
    if packing == "Padded":
        kept = sum(min(size, length) for size in sizes)
        return len(sizes), kept, total - kept, sum(size > length for size in sizes)
    if packing == "BestFit":
        rows = pack([Document(0, number, "", [0] * size) for number, size in enumerate(sizes)], length, None)
        return len(rows), total, 0, sum(size > length for size in sizes)
    rows_of = [[(start + token) // length for token in range(size)] for start, size in starts_of(sizes)]
    return -(-total // length), total, 0, sum(len(set(rows)) > 1 for rows in rows_of)


def starts_of(sizes: list[int]) -> list[tuple[int, int]]:
    return [(sum(sizes[:number]), size) for number, size in enumerate(sizes)]


def test_a_dataset_with_rows_is_refused(tmp_path: Path) -> None:
    write_source(tmp_path / "source", [50, 60])
    layout = {"sequence": {"length": 16}}
    run_job(make_job(tmp_path / "source", tmp_path / "out", output=layout), executor=inline())
    with pytest.raises(SpecError) as caught:
        report_lengths(tmp_path / "out", [16])
    assert (caught.value.reason, "rows of 16 tokens" in caught.value.message) == ("HasRows", True)
