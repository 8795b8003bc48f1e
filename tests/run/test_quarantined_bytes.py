"""`maxQuarantined` in per cent bounds documents and their bytes: one document may hold most of a corpus."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest

from support.command_line import Bench, dataset_of, ledger_of, read_table
from support.engine.inline import inline
from support.runs import make_job, read_index, write_index
from tokenization_worker.errors import DataError
from tokenization_worker.events import Event, Finished, Warned
from tokenization_worker.output.record import dump_record, load_record
from tokenization_worker.planning.limits import percent
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.run.run import run_job
from tokenization_worker.verification.verify import verify

GOOD = [f"document {number} of a corpus" for number in range(2000)]
LINES = [json.dumps({"text": text}).encode() + b"\n" for text in GOOD]
BAD = b'{"text": 7, "more": "' + b"x" * 150_000 + b'"}\n'
READ_BYTES = sum(map(len, LINES)) + len(BAD)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """2,000 good documents, a blank line, and a bad document that holds more than half of all bytes."""
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b"".join(LINES[:700]))
    (folder / "b.jsonl").write_bytes(b"".join(LINES[700:1500]) + b" \n" + BAD + b"".join(LINES[1500:]))
    return folder


def run(source: Path, output: Path, limit: Any = "0.1%", events: list[Event] | None = None, **fields: Any) -> Finished:
    job = make_job(source, output, {"tokenizer": {"name": "bytes"}, "maxQuarantined": limit}, fields)
    watch = events.append if events is not None else lambda event: None
    return run_job(job, executor=inline(), on_progress=watch)


def test_one_document_of_most_of_the_bytes_exceeds_a_percentage_and_a_raised_one_redoes_nothing(
    source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    with pytest.raises(DataError, match="QuarantineExceeded") as caught:
        run(source, output)
    words = str(caught.value)
    assert f"1 of 2,001 documents is unusable (WrongTextType 1); it holds {len(BAD):,} of {READ_BYTES:,} bytes" in words
    assert f"({len(BAD) * 100 / READ_BYTES:.0f} %), and maxQuarantined allows {READ_BYTES // 1000:,} bytes" in words
    assert "b.jsonl record 802, WrongTextType" in words
    done = ledger_of(output)

    needed = -(-len(BAD) * 10000 // READ_BYTES) / 100  # the least percentage of two decimals that is enough
    with pytest.raises(DataError, match="QuarantineExceeded"):
        run(source, output, f"{needed - 0.01:.2f}%")
    finished = run(source, output, f"{needed:.2f}%")

    assert ledger_of(output) == done
    assert (finished.quarantined_bytes, finished.read_bytes) == (len(BAD), READ_BYTES)
    index = read_index(output)
    assert (index["run"]["quarantinedBytes"], index["run"]["readBytes"]) == (len(BAD), READ_BYTES)
    rows = read_table(output, "_tokenization/files.jsonl.zst")
    assert [(row["readBytes"], row["quarantinedBytes"]) for row in rows] == [
        (sum(map(len, LINES[:700])), 0),
        (sum(map(len, LINES[700:])) + len(BAD), len(BAD)),
    ]


def test_both_bounds_are_named_where_both_are_exceeded(source: Path, tmp_path: Path) -> None:
    (source / "c.jsonl").write_bytes(b"not JSON\n" * 3)
    with pytest.raises(DataError, match="QuarantineExceeded") as caught:
        run(source, tmp_path / "out")
    assert "4 of 2,004 documents are unusable (InvalidJson 3, WrongTextType 1); maxQuarantined allows 2; they hold" in (
        str(caught.value)
    )


def test_a_count_limits_documents_alone(source: Path, tmp_path: Path) -> None:
    assert run(source, tmp_path / "out", 1).documents_quarantined == 1


@pytest.mark.parametrize("range_bytes", ["100k", "1Ki"])
def test_cuts_change_neither_sums_nor_the_digest(range_bytes: str, source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "whole", "90%")
    run(source, tmp_path / "cut", "90%", rangeBytes=range_bytes)
    whole, cut = read_index(tmp_path / "whole"), read_index(tmp_path / "cut")
    assert whole["digest"] == cut["digest"]
    for name in ("readBytes", "quarantinedBytes"):
        assert whole["run"][name] == cut["run"][name] > 0
    tables = [read_table(tmp_path / name, "_tokenization/files.jsonl.zst") for name in ("whole", "cut")]
    assert tables[0] == tables[1]


def test_a_dropped_file_counts_no_bytes(source: Path, tmp_path: Path) -> None:
    (source / "z.jsonl.gz").write_bytes(b"\x1f\x8b not gzip")
    run(source, tmp_path / "out", "90%", maxCorruptFiles=1)
    assert read_index(tmp_path / "out")["run"]["readBytes"] == READ_BYTES
    row = read_table(tmp_path / "out", "_tokenization/files.jsonl.zst")[-1]
    assert (row["outcome"], row["readBytes"], row["quarantinedBytes"]) == ("CorruptFile", None, None)


def forget_bytes(output: Path) -> None:
    """Write the receipts as versions before wrote them."""
    for path in (output / "_tokenization" / "ledger" / "0" / "ranges").iterdir():
        record = load_record(path.read_bytes())
        for part in record["slices"]:
            del part["read_bytes"], part["quarantined_bytes"]
        path.write_bytes(dump_record(record))


def test_receipts_of_older_versions_are_judged_by_documents_alone_with_a_warning(source: Path, tmp_path: Path) -> None:
    output, events = tmp_path / "out", list[Event]()
    with pytest.raises(DataError, match="QuarantineExceeded"):
        run(source, output)
    forget_bytes(output)
    done = ledger_of(output)

    finished = run(source, output, "0.1%", events)

    assert ledger_of(output) == done
    assert (finished.documents_quarantined, finished.quarantined_bytes, finished.read_bytes) == (1, None, None)
    assert any(
        "applies to the number of documents only" in event.message for event in events if isinstance(event, Warned)
    )
    assert read_index(output)["run"]["quarantinedBytes"] is None
    run(source, tmp_path / "new", "90%")
    assert dataset_of(output)["index.json"]["digest"] == read_index(tmp_path / "new")["digest"]
    assert verify(str(output), mode="full", processes=1).findings == ()


def test_the_digest_of_a_slice_is_what_it_was_before_bytes_were_counted(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "out", "90%", rangeBytes="1Gi")
    (path,) = (tmp_path / "out" / "_tokenization" / "ledger" / "0" / "ranges").iterdir()
    digests = [part["digest"] for part in load_record(path.read_bytes())["slices"]]
    assert digests == ["19677605d27995d7abc09d545b1b0955", "ecd7176d8abc464acde4b2f900aad560"]


def test_summary_and_status_show_the_share_of_the_bytes(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (bench.source / "b.jsonl").write_bytes(
        b'{"text": "' + b"x" * 300_000 + b"\n" + (bench.source / "b.jsonl").read_bytes()
    )
    failed = bench.tokjob("run", "job.yaml", "--maxQuarantined", "1%")
    assert failed.code == 4
    assert "QuarantineExceeded: 1 of 121 documents is unusable (InvalidJson 1); it holds 300,011 of" in failed.err
    read_bytes = sum(path.stat().st_size for path in bench.source.iterdir())
    share = f"1 quarantined ({300_011 * 100 / read_bytes:.0f} % of the bytes)"
    assert share in bench.tokjob("status", "out").out
    done = bench.tokjob("run", "job.yaml", "--maxQuarantined", "1")
    assert done.code == 0, done.err
    assert share in done.out
    assert share in bench.tokjob("run", "job.yaml", "--maxQuarantined", "1").out
    state = json.loads(bench.tokjob("status", "out", "--json").out)
    assert (state["quarantined_bytes"], state["read_bytes"]) == (300_011, read_bytes)


@pytest.mark.parametrize("mode", ["sample", "full"])
@pytest.mark.parametrize("name", ["readBytes", "quarantinedBytes"])
def test_verify_proves_the_sums_of_bytes(name: str, mode: str, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    run(source, output, "90%")
    assert verify(str(output), mode=mode, processes=1).findings == ()
    index = read_index(output)
    index["run"][name] += 1
    write_index(output, index)
    (finding,) = verify(str(output), mode="checksums", processes=1).findings
    assert "TablesDisagree" in str(finding) and f"run.{name}" in str(finding)

    rows = read_table(output, "_tokenization/files.jsonl.zst")
    rows[1][name] += 1  # the sum is right now, and the file's own is not
    lines = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    (output / "_tokenization" / "files.jsonl.zst").write_bytes(zstd.compress(lines))
    index["run"]["filesDigest"] = sha256(lines).hexdigest()
    write_index(output, index)
    (finding,) = verify(str(output), mode=mode, processes=1).findings
    assert "FileCounts" in str(finding) and "bytes of documents" in str(finding)


@pytest.mark.parametrize(
    ("part", "whole", "words"),
    [
        (0, 10, "0 %"),
        (1, 10**9, "<0.01 %"),
        (61, 100, "61 %"),
        (5, 1000, "0.5 %"),
        (999_999, 10**6, ">99 %"),
        (7, 7, "100 %"),
    ],
)
def test_a_percentage_is_0_or_100_only_where_it_is(part: int, whole: int, words: str) -> None:
    assert percent(part, whole) == words
