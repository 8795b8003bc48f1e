"""`tokjob verify`: what its words promise, its options and its advice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command_line import Bench, sample_texts
from support.corpus import json_lines
from support.runs import move_dataset, read_index, write_index
from tokenization_worker.cli.main import main
from tokenization_worker.output import layout
from tokenization_worker.verification.verify import verify


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.chdir(tmp_path)
    return Bench(tmp_path)


@pytest.mark.parametrize(("count", "least", "most"), [(1, 1, 1), (50, 50, 50), (127, 127, 127), (400, 40, 100)])
def test_sample_of_a_small_dataset_proves_something(count: int, least: int, most: int, bench: Bench) -> None:
    for name in "bc":
        (bench.source / f"{name}.jsonl").unlink()
    (bench.source / "a.jsonl").write_bytes(json_lines(sample_texts("a", count)))
    bench.run()
    report = verify(str(bench.output), processes=1)
    assert report.is_clean
    assert report.documents == count
    assert least <= report.documents_compared <= most


# --- options


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--mode", "ful"], "invalid choice: 'ful' (choose from"),
        (["--mode", "checksums", "--full"], "--full contradicts --mode checksums: leave one of them out"),
        (["--digest", "--full"], "--digest proves nothing, in no mode: leave --mode and --full out"),
    ],
    ids=["no-mode", "two-modes", "digest-in-a-mode"],
)
def test_options_that_contradict_are_refused(
    arguments: list[str], words: str, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["verify", "out", *arguments])
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert words in told
    assert "VerifyMode" not in told


def test_digest_can_be_json(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.run()
    assert main(["verify", "out", "--digest", "--processes", "1"]) == 0
    digest = capsys.readouterr().out.strip()
    assert main(["verify", "out", "--digest", "--json", "--processes", "1"]) == 0
    assert json.loads(capsys.readouterr().out) == {"digest": digest}


def test_digest_of_a_damaged_dataset_is_not_printed(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.run()
    shard = bench.output / "train" / "train_000000.npy"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    assert main(["verify", "out", "--digest", "--processes", "1"]) == 4
    told = capsys.readouterr()
    assert told.out == ""
    assert "DatasetDamaged: " in told.err
    assert "ShardChecksum: train/train_000000.npy" in told.err
    assert "next: run the job again with a new rerunToken" in told.err


# --- advice


def unlink(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


TABLES = (layout.SHARDS_TABLE, layout.FILES_TABLE, layout.QUARANTINE_TABLE)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("change", [unlink, cut])
def test_damaged_table_is_mended_as_the_report_says(
    change: Callable[[Path], None], table: str, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.run()
    change(bench.output / table)
    assert main(["verify", "out", "--processes", "1"]) == 4
    told = capsys.readouterr().out
    assert f"next: restore {table} from a copy, or delete index.json and run the job again" in told
    (bench.output / "index.json").unlink()
    bench.run()
    assert main(["verify", "out", "--full", "--processes", "1"]) == 0


@pytest.mark.parametrize("table", [*TABLES, "index.json"])
def test_the_index_of_a_copied_dataset_is_not_to_be_deleted(
    table: str, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no ledger, from which index and tables could be written again."""
    bench.run()
    copied = move_dataset(bench.output, bench.folder / "copied")
    cut(copied / table)
    for command in ("verify", "show", "status"):
        main([command, "copied"])
    told = capsys.readouterr()
    text = told.out + told.err
    assert "from a copy; do not delete index.json: the run's plan and receipts" in text
    assert "or delete" not in text
    write_index(copied, read_index(bench.output) | {"tokens": 1})
    main(["verify", "copied"])
    assert "do not delete index.json" in capsys.readouterr().out


def test_findings_of_an_index_are_one_sentence_each(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.run()
    index = read_index(bench.output)
    tokens = index["splits"][0]["tokens"]
    index["splits"][0]["tokens"] += 1
    write_index(bench.output, index | {"digest": "0" * 64})
    assert main(["verify", "out", "--processes", "1"]) == 4
    told = capsys.readouterr().out
    assert f"TablesDisagree: index.json: expected splits[0].tokens: {tokens}, found {tokens + 1}\n" in told
    digest = read_index(bench.output)
    assert "DigestDiffers: index.json: expected the digest of the dataset's files, " in told
    assert f", found {digest['digest']}" in told


def test_plan_without_receipts_is_no_ledger(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.run()
    shutil.rmtree(bench.output / layout.LEDGER)
    cut(bench.output / layout.SHARDS_TABLE)
    assert main(["verify", "out"]) == 4
    assert "do not delete index.json" in capsys.readouterr().out


def test_damaged_index_or_plan_is_mended_as_the_report_says(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.run()
    write_index(bench.output, read_index(bench.output) | {"tokens": 1})
    assert main(["verify", "out", "--processes", "1"]) == 4
    assert "next: restore index and tables from a copy, or delete index.json" in capsys.readouterr().out
    (bench.output / "index.json").unlink()
    bench.run()
    (bench.output / layout.PLAN).write_bytes((bench.output / layout.PLAN).read_bytes()[:20])
    assert main(["verify", "out", "--processes", "1"]) == 4
    assert f"next: restore {layout.PLAN} from a copy, or delete it" in capsys.readouterr().out
    (bench.output / layout.PLAN).unlink()
    assert main(["verify", "out", "--processes", "1"]) == 0


def test_unexpected_file_is_moved_away_and_a_damaged_shard_written_again(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.run()
    bench.write("out/train/train_000099.npy", "theirs")
    cut(bench.output / "train" / "train_000000.npy")
    assert main(["verify", "out", "--processes", "1"]) == 4
    told = capsys.readouterr().out
    assert (
        "next: run the job again with a new rerunToken: it writes mismatched shards again; move train/train_000099"
        in told
    )
    (bench.output / "train" / "train_000099.npy").unlink()
    bench.run(more='  rerunToken: "2"\n')
    assert main(["verify", "out", "--processes", "1"]) == 0


def test_source_that_is_gone_is_said_in_a_sentence(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.run()
    (bench.source / "a.jsonl").unlink()
    assert main(["verify", "out", "--processes", "1"]) == 3
    assert "; it no longer exists" in capsys.readouterr().err
