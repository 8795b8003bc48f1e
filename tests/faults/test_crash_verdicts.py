"""Documents that really kill their worker: found, left out, listed, and proved to be all that is missing."""

from __future__ import annotations

import gzip
import json
import math
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.command_line import read_table, sample_texts
from support.corpus import json_lines
from support.engine.inline import inline
from support.places import PROGRAMS
from support.runs import TOKJOB, command, difference, leftovers, make_job, read_index, run_command, write_index
from tokenization_worker.engine.task import Task, WorkerLost
from tokenization_worker.output import layout
from tokenization_worker.output.ledger.crash_verdicts import record_crash_verdict
from tokenization_worker.pipelines.tokenize.ranges.range_task import TokenizeTask
from tokenization_worker.pipelines.tokenize.shard_builder import BuildTask
from tokenization_worker.readers.document_batch import FileSlice
from tokenization_worker.run.run import run_job
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.verification.verify import verify

pytestmark = pytest.mark.slow

HOOK = PROGRAMS / "poisoned"
TIMEOUT_S = 600
JOB: dict[str, Any] = {"tokenizer": {"name": "bytes"}, "output": {"shards": {"tokens": 20_000}}}

DETAILS = {
    "<segfault>": "killed by SIGSEGV",
    "<hoard>": "out of memory",
    "<no memory>": "out of memory",
    "<exit>": "exit code 7",
    "<killed>": "killed by SIGKILL",
}


class Bench:
    """A folder with a source and an output, in which commands run whose processes die of marked texts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "src"
        self.output = folder / "out"
        self.source.mkdir()
        (folder / "deaths").mkdir()

    def run(self, fields: dict[str, Any], *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """`tokjob run`; by default as many documents may be unusable as there are."""
        job = make_job(self.source, self.output, JOB, {"maxQuarantined": "100%"}, fields)
        return self._start(command(job, self.folder / "job", "--json", *options), **environment)

    def tokjob(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another command, which dies of a marked text in whatever process."""
        return self._start([str(TOKJOB), *arguments], POISON_DRIVER="0")

    def _start(self, arguments: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(HOOK), *filter(None, [os.environ.get("PYTHONPATH")])])
        more = {"PYTHONPATH": path, "POISON_FOLDER": str(self.folder / "deaths"), **environment}
        return run_command(arguments, timeout_s=TIMEOUT_S, **more)

    def deaths(self, *, planning: bool = False) -> Counter[str]:
        """How many processes have died of each mark; those that count a sample's tokens for the plan, or the others."""
        names = [path.name.rsplit(" ", 2) for path in (self.folder / "deaths").iterdir()]
        return Counter(mark for mark, target, _ in names if (target == "_send_result") == planning)

    def expect(self, files: dict[str, Iterable[str]], fields: dict[str, Any]) -> Path:
        """The dataset of these documents alone, all of them harmless."""
        source, output = self.folder / "harmless", self.folder / "expected"
        source.mkdir()
        for name, texts in files.items():
            (source / f"{name}.jsonl").write_bytes(json_lines(list(texts)))
        run_job(make_job(source, output, JOB, fields), executor=inline())
        return output

    def poison(self) -> list[tuple[str, int, str]]:
        """(file, position, detail) of what the index says; the quarantine table and the verdicts say the same."""
        entries = read_index(self.output)["run"]["poison"]
        rows = [row for row in read_table(self.output, layout.QUARANTINE_TABLE) if row["reason"] == "KillsWorker"]
        found = [(entry["uri"], entry["position"], entry["detail"]) for entry in entries]
        assert [(row["uri"], row["position"], row["detail"]) for row in rows] == found
        verdicts = [json.loads(path.read_bytes()) for path in sorted((self.output / layout.CRASH_VERDICTS).iterdir())]
        assert [(item["uri"], item["position"], item["detail"]) for item in verdicts] == found
        for entry, row, verdict in zip(entries, rows, verdicts, strict=True):
            assert row["excerpt"] == verdict["excerpt"]
            assert entry["reason"] == verdict["reason"] == "KillsWorker"
            assert (entry["sha256"], entry["bytes"]) == (verdict["sha256"], verdict["bytes"])
        return [(Path(uri).name, position, detail) for uri, position, detail in found]

    def require_proven(self, *modes: str) -> None:
        """`verify` finds nothing wrong and dies of nothing, neither where it counts nor where it encodes all."""
        for mode in modes:
            verified = self.tokjob("verify", str(self.output), "--mode", mode)
            assert verified.returncode == 0, verified.stdout + verified.stderr
        assert leftovers(self.output) == []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def warnings(ended: subprocess.CompletedProcess[str]) -> list[str]:
    events = [json.loads(line) for line in ended.stdout.splitlines()]
    return [event["message"] for event in events if event["event"] == "warned"]


def put(texts: list[str], number: int, mark: str) -> str:
    """Mark a text; returns what it is now."""
    texts[number] = f"{texts[number][:20]} {mark} {texts[number]}"
    return texts[number]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("mark", "number", "processes"),
    [
        ("<segfault>", 0, 1),
        ("<segfault>", 500, 2),
        ("<segfault>", 999, 1),
        ("<exit>", 1, 1),
        ("<hoard>", 500, 1),
        ("<no memory>", 0, 1),
        ("<killed>", 500, 2),
    ],
)
def test_a_document_that_kills_its_worker_is_left_out_and_the_job_goes_on(
    mark: str, number: int, processes: int, bench: Bench
) -> None:
    texts = sample_texts("a", 1000)
    poisonous = put(texts, number, mark)
    (bench.source / "a.jsonl").write_bytes(json_lines(texts))
    ended = bench.run({}, "--processes", str(processes))
    assert ended.returncode == 0, ended.stderr
    assert difference(bench.output, bench.expect({"a": [text for text in texts if text != poisonous]}, {})) is None
    position = len(json_lines(texts[:number]))
    assert bench.poison() == [("a.jsonl", position, DETAILS[mark])]
    (entry,) = read_index(bench.output)["run"]["poison"]
    assert entry["sha256"] == sha256(poisonous.encode()).hexdigest()
    assert entry["bytes"] == len(poisonous.encode())
    (row,) = read_table(bench.output, layout.QUARANTINE_TABLE)
    assert (row["record"], row["excerpt"]) == (number + 1, poisonous[:200])
    lost, left_out = warnings(ended)
    assert f"range 0 ({bench.source}/a.jsonl) lost its worker and is retried: " in lost
    told = "this document crashes the tokenizer even when encoded alone; it was quarantined"
    assert f"{bench.source}/a.jsonl @ {position:,}: {told}" in left_out
    bench.require_proven("full")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("n", [1, 2, 1000])
@pytest.mark.parametrize("where", ["first", "last"])
def test_it_is_found_in_at_most_log2_n_plus_2_tries(n: int, where: str, bench: Bench) -> None:
    """Every process that dies of it counts, also the worker whose death began the search."""
    texts = sample_texts("a", n)
    put(texts, 0 if where == "first" else n - 1, "<segfault>")
    (bench.source / "a.jsonl").write_bytes(json_lines(texts))
    (bench.source / "b.jsonl").write_bytes(json_lines(["harmless " * 100]))
    ended = bench.run({}, "--processes", "1")
    assert ended.returncode == 0, ended.stderr
    assert len(bench.poison()) == 1
    assert 2 <= bench.deaths()["<segfault>"] <= math.log2(n) + 2
    assert bool(bench.deaths(planning=True)) == (where == "first" or n < 1000)  # in the sample, too, which is counted


def test_several_in_several_ranges_and_files_are_all_found(bench: Bench) -> None:
    fields = {"rangeBytes": "64Ki", "output": {"splits": [{"name": "val", "share": "10%"}, {"name": "train"}]}}
    files = {name: sample_texts(name, 400) for name in "ab"}
    marked = [("a", 3, "<segfault>"), ("a", 4, "<exit>"), ("a", 5, "<segfault>"), ("a", 399, "<exit>")]
    marked += [("b", 0, "<segfault>"), ("b", 200, "<no memory>")]
    for name, number, mark in marked:
        put(files[name], number, mark)
    for name, texts in files.items():
        (bench.source / f"{name}.jsonl").write_bytes(json_lines(texts))
    ended = bench.run(fields, "--processes", "2")
    assert ended.returncode == 0, ended.stderr
    harmless = {
        name: [text for number, text in enumerate(texts) if (name, number) not in {(f, n) for f, n, _ in marked}]
        for name, texts in files.items()
    }
    assert difference(bench.output, bench.expect(harmless, fields)) is None
    assert bench.poison() == [
        (f"{name}.jsonl", len(json_lines(files[name][:number])), DETAILS[mark]) for name, number, mark in marked
    ]
    assert max(bench.deaths().values()) <= 3 * 3
    bench.require_proven("checksums", "sample", "full")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", ["gzip", "blank lines", "text", "parquet"])
def test_it_is_found_in_every_kind_of_source(kind: str, bench: Bench) -> None:
    texts = sample_texts("a", 300)
    put(texts, 120, "<segfault>")
    fields: dict[str, Any] = {}
    record = 121
    match kind:
        case "gzip":
            (bench.source / "a.jsonl.gz").write_bytes(gzip.compress(json_lines(texts)))
        case "blank lines":
            lines = json_lines(texts).splitlines(keepends=True)
            (bench.source / "a.jsonl").write_bytes(b"\n" + b" \n".join(lines) + b"not JSON\n")
            record = 1 + 2 * 120 + 1
        case "text":
            fields = {"source": {"format": "Text", "documentSeparator": "\n--\n"}}
            (bench.source / "a.txt").write_text("\n--\n".join(texts))
        case _:
            table = pa.table({"text": texts})
            pq.write_table(table, bench.source / "a.parquet", row_group_size=50, compression="none")
            fields = {"rangeBytes": "64Ki"}
    ended = bench.run(fields)
    assert ended.returncode == 0, ended.stderr
    assert difference(bench.output, bench.expect({"a": texts[:120] + texts[121:]}, {})) is None
    rows = read_table(bench.output, layout.QUARANTINE_TABLE)
    assert [row["record"] for row in rows if row["reason"] == "KillsWorker"] == [record]
    assert len(bench.poison()) == 1
    bench.require_proven("full")


def test_a_verdict_is_obeyed_by_later_starts_and_other_runs(bench: Bench) -> None:
    texts = sample_texts("a", 300)
    put(texts, 7, "<exit>")
    put(texts, 70, "<exit>")
    (bench.source / "a.jsonl").write_bytes(json_lines(texts))
    stopped = bench.run({"maxQuarantined": 1})
    assert stopped.returncode == 4
    assert "QuarantineExceeded: 2 of 300 documents are unusable (KillsWorker 2)" in stopped.stderr
    assert "2 documents found to crash the tokenizer" in bench.tokjob("status", str(bench.output)).stdout
    before = bench.deaths()
    resumed = bench.run({"maxQuarantined": 2})
    assert resumed.returncode == 0, resumed.stderr
    expected = bench.expect({"a": [text for text in texts if "<exit>" not in text]}, {})
    assert difference(bench.output, expected) is None

    for path in (bench.output / layout.INDEX, bench.output / layout.LEDGER, bench.output / "train"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = bench.run({})
    assert again.returncode == 0, again.stderr
    assert warnings(again) == []
    assert difference(bench.output, expected) is None
    assert bench.deaths() == before


def test_a_document_that_kills_only_in_company_is_not_blamed(bench: Bench) -> None:
    texts = sample_texts("a", 300)
    put(texts, 120, "<dies in company>")
    (bench.source / "a.jsonl").write_bytes(json_lines(texts))
    ended = bench.run({"maxQuarantined": 0})
    assert ended.returncode == 0, ended.stderr
    assert difference(bench.output, bench.expect({"a": texts}, {})) is None
    assert read_index(bench.output)["run"]["poison"] == []
    assert not (bench.output / layout.CRASH_VERDICTS).exists()
    assert bench.deaths() == {"<dies in company>": 1}


def test_clean_removes_verdicts_too(bench: Bench) -> None:
    texts = sample_texts("a", 30)
    put(texts, 7, "<exit>")
    (bench.source / "a.jsonl").write_bytes(json_lines(texts))
    assert bench.run({"maxQuarantined": 0}).returncode == 4
    assert list((bench.output / layout.CRASH_VERDICTS).iterdir())
    assert bench.tokjob("clean", str(bench.output)).returncode == 0
    assert not bench.output.exists() or not list(bench.output.rglob("*"))


def test_show_counts_without_them(bench: Bench) -> None:
    texts = sample_texts("a", 30)
    put(texts, 7, "<exit>")
    (bench.source / "a.jsonl").write_bytes(json_lines(texts))
    assert bench.run({}).returncode == 0
    shown = bench.tokjob("show", str(bench.output), "--count", "9", "--json")
    documents = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [document["record"] for document in documents] == [1, 2, 3, 4, 5, 6, 7, 9, 10]
    assert [document["note"] for document in documents] == [""] * 9


@pytest.mark.parametrize("what", ["entry gone", "another text"])
def test_verify_believes_no_index_that_leaves_out_what_it_likes(what: str, bench: Bench) -> None:
    texts = sample_texts("a", 300)
    put(texts, 7, "<exit>")
    (bench.source / "a.jsonl").write_bytes(json_lines(texts))
    assert bench.run({}).returncode == 0
    index = read_index(bench.output)
    if what == "entry gone":
        index["run"]["poison"] = []
    else:
        index["run"]["poison"][0]["sha256"] = "0" * 64
    write_index(bench.output, index)
    verified = run_command([str(TOKJOB), "verify", str(bench.output)])
    assert verified.returncode == 4
    assert {"entry gone": "TablesDisagree", "another text": "QuarantineDiffers"}[what] in verified.stdout


@pytest.mark.exhaustive
def test_it_is_found_on_ray_too(bench: Bench) -> None:
    texts = sample_texts("a", 1000)
    put(texts, 500, "<segfault>")
    (bench.source / "a.jsonl").write_bytes(json_lines(texts))
    (bench.source / "b.jsonl").write_bytes(json_lines(sample_texts("b", 300)))
    ended = bench.run({}, "--executor", "ray", "--processes", "2", RAY_ADDRESS="local")
    assert ended.returncode == 0, ended.stderr
    harmless = {"a": texts[:500] + texts[501:], "b": sample_texts("b", 300)}
    assert difference(bench.output, bench.expect(harmless, {})) is None
    assert bench.poison() == [("a.jsonl", len(json_lines(texts[:500])), DETAILS["<segfault>"])]
    assert bench.deaths() == {"<segfault>": 3}
    assert leftovers(bench.output) == []


class Survivors:
    """Texts of which nobody dies here, with a verdict on one of them: what concurrent runs may find of each other."""

    def __init__(self, folder: Path) -> None:
        self.source, self.output = folder / "src", folder / "out"
        self.texts = sample_texts("a", 300)
        self.source.mkdir()
        (self.source / "a.jsonl").write_bytes(json_lines(self.texts))
        self.job = make_job(self.source, self.output, JOB, {"maxQuarantined": 1})

    def judge(self) -> Path:
        """Another run, to which the tenth document was fatal, writes that down."""
        part = FileSlice(0, str(self.source / "a.jsonl"), 0, "")
        position = len(json_lines(self.texts[:9]))
        record_crash_verdict(LocalStore(self.output), part, position, self.texts[9], "exit code 7")
        return self.output / layout.crash_verdict_path(0, position)

    def receipt(self) -> Path:
        return self.output / layout.range_receipt_path(0, 0)

    def stop_before_build(self, task: Task) -> None:
        if isinstance(task, BuildTask):
            raise KeyError("stopped")


@pytest.fixture
def survivors(tmp_path: Path) -> Survivors:
    return Survivors(tmp_path)


def test_a_receipt_that_is_there_counts_whatever_a_verdict_says(survivors: Survivors, tmp_path: Path) -> None:
    """Its writer survived the document, so the dataset holds it, also where its segment has to be made again."""
    with pytest.raises(KeyError, match="stopped"):
        run_job(survivors.job, executor=inline(survivors.stop_before_build))
    before = survivors.receipt().read_bytes()
    survivors.judge()
    (survivors.output / layout.segment_path(0, 0)).unlink()
    finished = run_job(survivors.job, executor=inline())
    assert finished.documents_quarantined == 0
    assert survivors.receipt().read_bytes() == before
    assert read_index(survivors.output)["run"]["poison"] == []
    survivors.output.rename(tmp_path / "with")
    run_job(survivors.job, executor=inline())
    assert difference(survivors.output, tmp_path / "with") is None


def test_what_a_receipt_left_out_stays_out_when_its_verdict_is_gone(survivors: Survivors) -> None:
    with pytest.raises(KeyError, match="stopped"):
        run_job(survivors.job, executor=inline(survivors.stop_before_build))
    for path in (survivors.receipt(), survivors.output / layout.segment_path(0, 0)):
        path.unlink()
    verdict = survivors.judge()
    with pytest.raises(KeyError, match="stopped"):
        run_job(survivors.job, executor=inline(survivors.stop_before_build))
    before = survivors.receipt().read_bytes()
    verdict.unlink()
    (survivors.output / layout.segment_path(0, 0)).unlink()
    finished = run_job(survivors.job, executor=inline())
    assert (finished.documents_quarantined, finished.documents_written) == (1, 299)
    assert survivors.receipt().read_bytes() == before
    assert len(read_index(survivors.output)["run"]["poison"]) == 1


def test_a_verdict_that_another_run_has_found_meanwhile_is_obeyed_in_isolation(survivors: Survivors) -> None:
    lost: list[TokenizeTask] = []
    redone: list[TokenizeTask] = []

    def lose_once(task: Task) -> None:
        if isinstance(task, TokenizeTask):
            (redone if lost else lost).append(task)
            if not redone:
                survivors.judge()
                raise WorkerLost("gone", with_node=False)

    finished = run_job(survivors.job, executor=inline(lose_once))
    assert [task.isolated for task in (*lost, *redone)] == [False, True]
    assert finished.documents_quarantined == 1
    assert len(read_index(survivors.output)["run"]["poison"]) == 1


def test_the_index_names_no_document_of_a_file_that_is_dropped(tmp_path: Path) -> None:
    """Its first range left the document out before another one found the file damaged."""
    source, output = tmp_path / "src", tmp_path / "out"
    source.mkdir()
    file = source / "a.parquet"
    texts = [f"{row} {'text of a row ' * 200}" for row in range(200)]
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(pa.table({"text": texts}), file, row_group_size=50, **options)
    damaged = bytearray(file.read_bytes())
    damaged[pq.ParquetFile(file).metadata.row_group(3).column(0).data_page_offset + 50_000] ^= 0xFF
    file.write_bytes(damaged)
    (source / "b.jsonl").write_bytes(json_lines(["fine"] * 50))
    record_crash_verdict(LocalStore(output), FileSlice(0, str(file), 0, ""), 5, texts[5], "exit code 7")
    fields = {"rangeBytes": "64Ki", "maxCorruptFiles": 1}
    finished = run_job(make_job(source, output, JOB, fields), executor=inline())
    assert (finished.files_dropped, finished.documents_written, finished.documents_quarantined) == (1, 50, 0)
    receipt = json.loads((output / layout.range_receipt_path(0, 0)).read_bytes())
    assert [item["position"] for item in receipt["slices"][0]["poison"]] == [5]
    assert read_index(output)["run"]["poison"] == []
    assert verify(str(output), mode="sample", processes=1).is_clean


@pytest.mark.parametrize("first", ["survives", "obeys"])
def test_a_writer_that_survives_and_one_that_obeys_do_not_contradict_each_other(
    first: str, survivors: Survivors
) -> None:
    """While one of them works, the other writes its receipt; then the verdict turns up, or is not there any more."""
    nested = []

    def let_the_other_finish(task: Task) -> None:
        if not nested:
            nested.append(task)
            if first == "obeys":
                survivors.judge()
            with pytest.raises(KeyError, match="stopped"):
                run_job(survivors.job, executor=inline(survivors.stop_before_build))

    if first == "survives":
        with pytest.raises(KeyError, match="stopped"):
            run_job(survivors.job, executor=inline(survivors.stop_before_build))
        survivors.receipt().rename(survivors.output.parent / "receipt")
        survivors.judge()

        def put_back(task: Task) -> None:
            kept = survivors.output.parent / "receipt"
            if kept.exists():
                kept.rename(survivors.receipt())

        finished = run_job(survivors.job, executor=inline(put_back))
    else:
        finished = run_job(survivors.job, executor=inline(let_the_other_finish))
    assert finished.documents_quarantined == (first == "obeys")
    assert len(read_index(survivors.output)["run"]["poison"]) == finished.documents_quarantined
