"""`tokjob show --quarantined`: places, reasons and excerpts, of datasets and of runs that ended with an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command_line import Bench, read_table

HOSTILE = b'{"text": "\x1b]0;owned\x07", \xe2\x80\xae not JSON\n'


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Unusable documents at several places of two files, and one in a file of a hostile name."""
    bench = Bench(tmp_path)
    for name, before in (("b.jsonl", 5), ("c.jsonl", 12)):
        path = bench.source / name
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([*lines[:before], b"not JSON\n", b"\n", *lines[before:], b'{"text": null}\n']))
    bench.write("src/\x1b[31mred.jsonl", HOSTILE)
    return bench


PLACES = [
    ("\x1b[31mred.jsonl", 1, "InvalidJson"),
    ("b.jsonl", 6, "InvalidJson"),
    ("b.jsonl", 43, "NullText"),
    ("c.jsonl", 13, "InvalidJson"),
    ("c.jsonl", 43, "NullText"),
]


def listed(bench: Bench) -> list[dict[str, object]]:
    done = bench.tokjob("show", "--quarantined", "out", "--json")
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


@pytest.mark.parametrize("cut", [[], ["--rangeBytes", "3k"]], ids=["one range", "many ranges"])
def test_a_failed_run_and_its_dataset_list_the_same(cut: list[str], bench: Bench) -> None:
    assert bench.tokjob("run", "job.yaml", "--maxQuarantined", "2", *cut).code == 4
    failed = listed(bench)
    assert [(Path(str(row["uri"])).name, row["record"], row["reason"]) for row in failed] == PLACES
    content = (bench.source / "b.jsonl").read_bytes()
    assert [row["position"] for row in failed[1:3]] == [content.index(b"not JSON"), content.index(b'{"text": null}')]
    assert bench.tokjob("run", "job.yaml", "--maxQuarantined", "5").code == 0
    assert listed(bench) == failed
    table = read_table(bench.output, "_tokenization/quarantine.jsonl.zst")
    assert [{name: row[name] for name in failed[0]} for row in table] == failed


def test_what_a_terminal_would_obey_is_shown_escaped(bench: Bench) -> None:
    assert bench.tokjob("run", "job.yaml", "--maxQuarantined", "5").code == 0
    shown = bench.tokjob("show", "out", "--quarantined")
    assert shown.code == 0
    assert "\x1b" not in shown.out and "\x07" not in shown.out and "\u202e" not in shown.out
    assert f"── InvalidJson  {bench.source}/\\x1b[31mred.jsonl  record 1  position 0\n" in shown.out
    assert '   excerpt  {"text": "\\x1b]0;owned\\x07", \\u202e not JSON' in shown.out
    assert shown.out.endswith("\n5 unusable documents\n")


def test_of_an_unfinished_file_records_are_numbered_as_far_as_they_can_be_counted(bench: Bench) -> None:
    assert bench.tokjob("run", "job.yaml", "--maxQuarantined", "2", "--rangeBytes", "3k").code == 4
    numbered = listed(bench)
    receipts = sorted((bench.output / "_tokenization" / "ledger" / "0" / "ranges").iterdir())
    lists = {path.name[:8] for path in (bench.output / "_tokenization" / "ledger" / "0" / "quarantine").iterdir()}
    lost = next(path for path in receipts[len(receipts) // 2 :] if path.name[:8] not in lists)
    lost.unlink()
    rows = listed(bench)
    assert len(rows) == len(numbered)
    assert [row["position"] for row in rows] == [row["position"] for row in numbered]
    assert {row["record"] for row in rows} > {None}
    assert all(row["record"] in (None, was["record"]) for row, was in zip(rows, numbered, strict=True))


def test_documents_of_a_dropped_file_are_not_listed(bench: Bench) -> None:
    (bench.source / "d.jsonl.gz").write_bytes(b"\x1f\x8b not gzip")
    failed = bench.tokjob("run", "job.yaml", "--maxQuarantined", "100%")
    assert (failed.code, "CorruptFile" in failed.err) == (4, True)
    assert {Path(str(row["uri"])).name for row in listed(bench)} <= {name for name, _, _ in PLACES}


def test_a_place_without_a_run_is_refused(bench: Bench) -> None:
    refused = bench.tokjob("show", "--quarantined", "src")
    assert refused.code == 2
    assert "NotAnOutput" in refused.err and "next: check the path" in refused.err


def test_a_dataset_without_unusable_documents_says_so(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run()
    assert bench.tokjob("show", "--quarantined", "out").out == "0 unusable documents\n"
    assert bench.tokjob("show", "--quarantined", "out", "--json").out == ""


def test_flags_of_documents_do_not_go_with_the_list(bench: Bench) -> None:
    refused = bench.tokjob("show", "--quarantined", "out", "--token", "7")
    assert refused.code == 2
    assert "--quarantined lists all unusable documents" in refused.err
