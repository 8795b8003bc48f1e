"""Parquet files with a changed byte: each gets a verdict, and none ends its reader."""

from __future__ import annotations

import io
from itertools import islice
from pathlib import Path

from support.command_line import read_table
from support.faults.hostile import TEXTS, parquet
from support.faults.parquet_bytes import answers, footers, judge, pages
from support.forked_commands import TOKJOB
from support.runs import command, make_job, run_command
from tokenization_worker.readers.parquet.reader import read_parquet

SEED, FIRST = 1, 170
"""Of the footers: pyarrow aborts where it is asked for metadata of some files from here on, also of the next 20."""


def test_a_changed_byte_in_a_footer_ends_no_reader() -> None:
    found, failures = judge(islice(footers(FIRST + 50, SEED), FIRST, None))
    assert failures == []
    assert found.total() == 50
    assert {"read, read, read", "damaged, damaged, damaged"} <= found.keys()


def test_a_changed_byte_before_the_footer_ends_no_reader() -> None:
    found, failures = judge(pages(50, SEED))
    assert failures == []
    assert {"read, read, read", "read, damaged, damaged", "damaged, damaged, damaged"} <= found.keys()


def test_rows_that_point_to_one_of_two_equal_values_are_read() -> None:
    """Of a kept dictionary pyarrow drops the second one, and the pointers behind it would be off by one."""
    content = parquet([f"value {number % 5}" for number in range(300)], compression="none")
    assert content.count(b"value 1") == 1, "only the dictionary has it"
    content = content.replace(b"value 1", b"value 0")
    batches = read_parquet(io.BytesIO(content), len(content), 0, -1, "text", 99)
    expected = ["value 0", "value 0", "value 2", "value 3", "value 4"] * 60
    assert [text for batch in batches for text in batch.texts] == expected


def test_plan_run_and_verify_give_such_files_a_verdict(tmp_path: Path) -> None:
    layers = {"tokenizer": {"name": "bytes"}, "maxCorruptFiles": "100%", "maxQuarantined": "100%"}
    source = tmp_path / "source"
    source.mkdir()
    (source / "good.parquet").write_bytes(parquet(TEXTS))
    expected = {"good.parquet": "read"}
    for number, (_, content) in enumerate(islice(footers(FIRST + 20, SEED), FIRST, None)):
        name = f"{number:02}.parquet"
        (source / name).write_bytes(content)
        expected[name] = answers(content)[1]
        alone = command(make_job(source / name, tmp_path / "alone", layers), tmp_path)
        planned = run_command([str(TOKJOB), "plan", *alone[2:]])
        assert planned.returncode in (0, 2), planned.stderr
    done = run_command(command(make_job(source, tmp_path / "out", layers), tmp_path, "--processes", "2"))
    assert done.returncode == 0, done.stderr
    rows = read_table(tmp_path / "out", "_tokenization/files.jsonl.zst")
    found = {row["uri"].rpartition("/")[2]: row["outcome"] for row in rows}
    assert {name: "read" if outcome == "Read" else "damaged" for name, outcome in found.items()} == expected
    verified = run_command([str(TOKJOB), "verify", str(tmp_path / "out")])
    assert verified.returncode == 0, verified.stdout + verified.stderr
