"""Parquet files with a changed byte: each gets a verdict, and none ends its reader."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from support.command_line import read_table
from support.faults.hostile import TEXTS, parquet
from support.faults.parquet_bytes import answers, footers, judge, pages, run_reads, verify_reads
from support.forked_commands import TOKJOB
from support.runs import command, make_job, run_command

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
    assert {"read, read, read", "damaged, damaged, damaged"} <= found.keys()


def with_equal_values(first: str, second: str) -> bytes:
    """Rows that point to five values, of which the second one is made equal to the first one."""
    content = parquet([(first, second, "c", "d", "e")[number % 5] for number in range(40)], **ONE_DICTIONARY)
    assert content.count(second.encode()) == 1, "only the dictionary has it"
    return content.replace(second.encode(), first.encode())


ONE_DICTIONARY = {"compression": "none", "write_statistics": False, "dictionary_pagesize_limit": 1 << 30}
LONG = "a" * 900_000
EQUAL = {
    "small": (with_equal_values("value 0", "value 1"), ["value 0", "value 0", "c", "d", "e"] * 8),
    "of one file": (with_equal_values(LONG * 5, "b" * len(LONG * 5)), [LONG * 5, LONG * 5, "c", "d", "e"] * 8),
    "not used": (
        parquet(pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3] * 50, pa.int32()), ["x", "y", "x", "z"])),
        ["x", "y", "x", "z"] * 50,
    ),
}
"""Files with dictionaries of equal values, and the texts of the rows. Where pyarrow keeps a dictionary, it drops all
but one of equal values, and pointers behind them are off. In the last file pyarrow dropped one as it wrote, and no row
points into the dictionary."""


@pytest.mark.parametrize(("content", "texts"), EQUAL.values(), ids=EQUAL.keys())
def test_rows_are_right_where_values_of_a_dictionary_are_equal(content: bytes, texts: list[str]) -> None:
    assert run_reads(content, 8 << 20) == texts
    assert verify_reads(content, 8 << 20) == texts


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
