"""The command line when all is well: what status, clean and plan say, flags for every field, and the three displays."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from io import RawIOBase, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.command_line import MANIFEST, Bench, byte_shards, sample_texts, shards_of
from support.corpus import json_lines
from support.places import PROGRAMS
from support.runs import TOKJOB, leftovers, read_index
from tokenization_worker.api.job import DATA_FIELDS, OPERATOR_FIELDS, JobSpec, TokenizationJob
from tokenization_worker.api.keys import run_key
from tokenization_worker.api.types.walk import is_list_type, iter_fields
from tokenization_worker.cli import progress
from tokenization_worker.cli.main import main
from tokenization_worker.cli.manifest import JobParser, job_from_arguments
from tokenization_worker.cli.progress import JsonDisplay, PlainDisplay
from tokenization_worker.events import Event, Planned, Progress, Warned
from tokenization_worker.output import layout

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


MORE = "  maxQuarantined: 1\n"


@pytest.fixture
def stopped(bench: Bench) -> Bench:
    """An unfinished run: all ranges are done, and one document too many is unusable."""
    bench.stop()
    return bench


# --- status and clean


def test_status_tells_each_phase_and_the_next_step(bench: Bench) -> None:
    def status() -> tuple[list[str], dict[str, Any]]:
        words = bench.tokjob("status", "out")
        numbers = bench.tokjob("status", "out", "--json")
        assert (words.code, numbers.code) == (0, 0)
        return words.out.splitlines(), json.loads(numbers.out)

    words, numbers = status()
    gone = f"           {bench.output} does not exist"
    assert words == [f"Empty      {bench.output}", gone, "           next: tokjob run with this output.uri"]
    assert numbers["phase"] == "Empty"

    bench.stop()
    words, numbers = status()
    assert words[0] == f"Failed     {bench.output}"
    assert words[1].strip().startswith("QuarantineExceeded: 1 of 121 documents")
    assert re.search(
        r"(\d+) of \1 ranges?, \d+ shards, .* tokens of .* read, 1 quarantined \(.* % of the bytes\), 0 files left out",
        words[2],
    )
    assert "raise maxQuarantined" in words[-1]
    assert (numbers["phase"], numbers["reason"], numbers["quarantined"]) == ("Failed", "QuarantineExceeded", 1)

    (bench.output / layout.FAILURE).unlink()
    words, numbers = status()
    assert words[0] == f"Interrupted {bench.output}"
    assert "next: start the same `tokjob run` again" in words[-1]

    bench.run(more=MORE)
    words, numbers = status()
    assert words[0] == f"Complete   {bench.output}"
    assert words[-1].strip() == f"next: tokjob verify {bench.output}"
    assert (numbers["phase"], numbers["ranges_done"]) == ("Complete", numbers["ranges"])
    assert numbers["tokens"] == read_index(bench.output)["tokens"]


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("job.yaml", "is a file"),
        ("src", "has files, but no run of tokjob"),
        ("out/train", "is a part of {output}, which is an output"),
        ("out/_tokenization/ledger", "is a part of {output}, which is an output"),
    ],
    ids=["file", "other-files", "inside-a-dataset", "inside-our-records"],
)
def test_status_of_what_is_no_output_says_what_it_is(stopped: Bench, place: str, words: str) -> None:
    told = stopped.tokjob("status", place)
    assert (told.code, told.out) == (2, "")
    assert f"NotAnOutput: {stopped.folder / place} {words.format(output=stopped.output)}" in told.err


def test_run_warns_once_of_fields_that_it_ignores(bench: Bench) -> None:
    def warnings(*flags: str) -> list[str]:
        told = bench.tokjob("run", "job.yaml", *flags)
        assert told.code == 0, told.err
        return [line for line in told.out.splitlines() if line.startswith("warning")]

    assert warnings("--suspend", "false", "--backoffLimit", "3", "--rerunToken", "1") == []
    assert warnings("--suspend", "true") == ["warning    suspend is for the operator: tokjob run ignores it"]
    assert warnings("--env", "[{name: A}]", "--workers.replicas", "2", "--activeDeadlineSeconds", "9") == [
        "warning    workers, env, activeDeadlineSeconds are for the operator: tokjob run ignores them"
    ]


def test_every_field_is_the_datas_the_operators_or_obeyed_here() -> None:
    obeyed = {"max_quarantined", "max_corrupt_files", "range_bytes", "rerun_token"}
    assert obeyed | {*DATA_FIELDS, *OPERATOR_FIELDS} == set(JobSpec.model_fields)


@pytest.mark.parametrize("place", ["nowhere", "empty", "killed"])
def test_status_of_an_empty_place_is_empty(bench: Bench, place: str) -> None:
    (bench.folder / "empty").mkdir()
    bench.write("killed/_tokenization/probe", "")
    bench.write("index.json", "of somebody else")
    told = bench.tokjob("status", place)
    assert (told.code, told.out.split()[0]) == (0, "Empty")


def test_clean_lists_then_removes_what_is_ours_and_nothing_else(stopped: Bench) -> None:
    stopped.write("out/notes.txt", "theirs")
    like_shards = ["train/notes.npy", "mine/other_000007.npy", "mine/mine_000007.npy", "train/train_0000007.npy"]
    for path in like_shards:
        stopped.write(f"out/{path}", "theirs")
    before = stopped.files()

    listed = stopped.tokjob("clean", "out", "--dry-run")
    assert listed.code == 0
    assert stopped.files() == before
    *paths, summary = listed.out.splitlines()
    assert summary.startswith(f"would remove {len(paths)} objects, ")
    assert {"train/train_000000.npy", "_tokenization/plan"} <= set(paths)

    removed = stopped.tokjob("clean", "out")
    assert removed.code == 0
    assert removed.out.startswith(f"removed {len(paths)} objects, ")
    left = {path for path in stopped.files() if path.startswith("out/") and not path.endswith("/")}
    assert left == {"out/notes.txt", *(f"out/{path}" for path in like_shards)}

    assert "out has files, but no run of tokjob" in stopped.tokjob("status", "out").err
    for path in like_shards[2:]:  # a run refuses what looks like a shard
        (stopped.output / path).unlink()
    stopped.run(more=MORE)
    theirs = dict.fromkeys(like_shards[:2], b"theirs")
    assert shards_of(stopped.output) == byte_shards(stopped.documents) | theirs


def test_status_calls_a_dataset_complete_also_without_its_epochs(bench: Bench) -> None:
    bench.run()
    (bench.output / "_tokenization/epochs/0000.json").unlink()
    assert bench.tokjob("status", "out").out.startswith(f"Complete   {bench.output}")


@pytest.mark.parametrize("option", [[], ["--dry-run"]], ids=["clean", "dry-run"])
def test_clean_refuses_a_complete_dataset(option: list[str], bench: Bench) -> None:
    bench.run()
    before = bench.files()
    result = bench.tokjob("clean", "out", *option)
    assert result.code == 3
    assert f"DatasetCommitted: {bench.output} holds a complete dataset, which clean never removes" in result.err
    assert f"remove it yourself: rm -r {bench.output}" in result.err
    assert bench.files() == before


def test_plan_tells_what_a_run_would_do_and_leaves_nothing(bench: Bench) -> None:
    before = bench.files()
    words = bench.tokjob("plan", "job.yaml", "--output", "deep/er/out")
    numbers = json.loads(bench.tokjob("plan", "job.yaml", "--json").out)
    assert bench.files() == before
    assert words.code == 0
    assert [line.split()[0] for line in words.out.splitlines()] == [
        *("source", "formats", "tokens", "ranges", "output", "engine", "time", "there", "largest")
    ]
    tokens = sum(len(text.encode()) + 1 for text in bench.documents)
    assert abs(numbers["tokens"] - tokens) < tokens / 5
    assert (numbers["files"], numbers["dtype"], numbers["there"]) == (3, "UInt16", "nothing: a new run")


def test_plan_tells_what_is_at_the_output(stopped: Bench) -> None:
    def there(*arguments: str) -> str:
        return str(json.loads(stopped.tokjob("plan", "job.yaml", "--json", *arguments).out)["there"])

    unfinished = "an unfinished run of this job, which would be resumed"
    assert there().startswith(f"{unfinished} (its last start ended with QuarantineExceeded: 1 of 121 documents")
    (stopped.output / "_tokenization/failure.json").unlink()
    assert there() == unfinished
    stopped.run(more=MORE)
    assert there() == "this run is complete: nothing would be done"
    assert there("--rerunToken", "2") == "the same data, from another run: its shards would be checked"


# --- flags and manifests

AWKWARD = [
    *("--source", "src/a.jsonl", "--source", "src/c.jsonl", "--tokenizer", "bytes", "--output", "sets/{rerunToken}"),
    *("--output.shards.tokens", "3000", "--output.path", "{split}_{shard:05d}", "--rerunToken", "007"),
    *("--output.splits", "[{name: val, shards: 2}, {name: train}]", "--source.textField", "text"),
    *("--tokenizer.delimiter.position", "After", "--maxQuarantined", "0.5%", "--set", "documents.maxBytes=1Mi"),
    *("--workers.nodeSelector", "{a: b}", "--workers.replicas", "2"),
]


def test_printed_manifest_stands_for_the_same_run(bench: Bench) -> None:
    printed = bench.tokjob("run", *AWKWARD, "--print-manifest")
    assert printed.code == 0
    assert not (bench.folder / "sets").exists()
    bench.write("printed.yaml", printed.out)
    spec = yaml.safe_load(printed.out)["spec"]
    assert spec["rerunToken"] == "007"
    assert spec["output"]["path"] == "{split}_{shard:05d}"
    assert "dtype" not in spec["output"]

    assert bench.tokjob("run", *AWKWARD).code == 0
    again = bench.tokjob("run", "printed.yaml")

    warning, end, *_ = again.out.splitlines()
    assert warning == "warning    workers is for the operator: tokjob run ignores it"
    assert end.startswith("complete ")
    with contextlib.chdir(bench.folder):
        key = run_key(TokenizationJob.from_yaml(Path("printed.yaml")))
    assert read_index(bench.folder / "sets" / "007")["run"]["runKey"] == key
    twice = bench.tokjob("plan", "printed.yaml", "--print-manifest")
    assert twice.out == printed.out


def test_flags_outrank_the_manifest_and_a_manifest_can_come_by_standard_input(bench: Bench) -> None:
    done = subprocess.run(
        [TOKJOB, "run", "-", "--print-manifest", "--set", "spec.output.uri=other"],
        cwd=bench.folder,
        input=MANIFEST,
        text=True,
        capture_output=True,
        check=True,
    )
    assert yaml.safe_load(done.stdout) == yaml.safe_load(MANIFEST.replace("uri: out", "uri: other"))


def field_flags() -> set[str]:
    return {
        f"--{field.path}"
        for field in iter_fields(JobSpec)
        if not field.in_list and (field.block is None or is_list_type(field.info.annotation))
    }


def test_every_field_of_the_manifest_has_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "plan"):
        with pytest.raises(SystemExit):
            main([command, "--help-all"])
        shown = set(re.findall(r"--[\w.]+", capsys.readouterr().out))
        assert field_flags() <= shown
    assert {"--output.splits", "--env", "--workers.tolerations", "--rerunToken", "--source.uris"} <= field_flags()


@pytest.mark.parametrize(
    ("flag", "text", "value"),
    [
        ("output.path", "{split}/{index:04d}", "{split}/{index:04d}"),
        ("source.documentSeparator", "# [x]: y", "# [x]: y"),
        ("tokenizer.pattern", r"'(?i:[sdmt])|\p{N}{1,3}", r"'(?i:[sdmt])|\p{N}{1,3}"),
        ("source.textField", "12", "12"),
        ("rerunToken", "2026-11-21", "2026-11-21"),
        ("rerunToken", "007", "007"),
        ("tokenizer.delimiter.token", "null", None),
        ("source.uris", "[a, b]", ["a", "b"]),
        ("rangeBytes", "1000000", 1000000),
        ("maxQuarantined", "0.1%", "0.1%"),
        ("suspend", "true", True),
        ("tokenizer.delimiter.position", "None", "None"),
        ("tokenizer.specialTokens", '{"<|a|>": 7}', {"<|a|>": 7}),
    ],
    ids=lambda value: str(value),
)
@pytest.mark.parametrize("form", ["flag", "set"])
def test_value_of_a_flag_means_what_the_field_means(
    form: str, flag: str, text: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "tokenization_worker.cli.manifest.validate_manifest", lambda model, manifest, origin: seen.append(manifest)
    )
    arguments = [f"--{flag}", text] if form == "flag" else ["--set", f"{flag}={text}"]
    arguments += ["--tokenizer", "gpt2", "--output", "out", *(["--source", "a"] * (flag != "source.uris"))]
    job_from_arguments(JobParser("tokjob run", "").parse_args(arguments))
    place: Any = seen[0]["spec"]
    for part in flag.split("."):
        place = place[part]
    assert place == value


# --- displays


def test_json_lines_tell_the_run_from_plan_to_end(bench: Bench) -> None:
    with (bench.source / "b.jsonl").open("ab") as file:
        file.write(b"not JSON\n")
    bench.write("src/0.jsonl", b"")
    result = bench.tokjob("run", "job.yaml", "--json", "--maxQuarantined", "1")
    assert (result.code, result.err) == (0, "")
    events = [json.loads(line) for line in result.out.splitlines()]
    assert events[0]["event"] == "preparing"
    events = [event for event in events if event["event"] not in ("preparing", "advanced", "committing")]
    kinds = [event["event"] for event in events]
    assert kinds[:3] == ["warned", "planned", "progress"]
    assert set(kinds[2:-1]) == {"progress"}
    assert kinds[-1] == "finished"
    done = [event["ranges_done"] for event in events if event["event"] == "progress"]
    assert done == sorted(done)
    last, end = events[-2], events[-1]
    assert last["ranges_done"] == last["ranges"]
    assert last["shards_done"] == last["shards"] == end["shards"]
    assert last["bytes_done"] == last["bytes_total"]
    assert (end["documents_read"], end["documents_written"], end["documents_quarantined"]) == (121, 120, 1)
    assert end["tokens"] == last["tokens"] == read_index(bench.output)["tokens"]
    again = bench.tokjob("run", "job.yaml", "--json").out.splitlines()
    assert [json.loads(line)["already"] for line in again] == [True], "nothing is prepared"


def test_without_a_terminal_lines_are_plain(bench: Bench) -> None:
    result = bench.tokjob("run", "job.yaml")
    assert result.code == 0
    assert "\x1b" not in result.out
    assert "\r" not in result.out
    lines = result.out.splitlines()
    assert [line[:11].rstrip() for line in lines] == ["prepare", "plan", "commit", "done", ""]
    assert lines[0] == f"prepare    loading bytes, listing {bench.source}"
    assert re.fullmatch(
        r"plan       3 files  [\d.]+ kB stored  ~[\d.]+k tokens  \d+ ranges?  bytes  engine bytes", lines[1]
    )
    assert re.fullmatch(r"commit     \d+ shards: checking the totals, then writing the index", lines[2])
    assert "120 read = 120 written + 0 quarantined" in lines[3]
    assert lines[4] == f"           {bench.output}/index.json   check it: tokjob verify {bench.output}"


def test_plain_progress_is_a_line_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    display = PlainDisplay()
    for second in range(36):
        now[0] = 1000.0 + second
        display(progress_event(second))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert (
        lines[0] == "tokenize    28%  10.0k tokens  1,000/s  4.0 kB/s  3 quarantined  0:26 left  0:10  build 1/? shards"
    )


def progress_event(step: int) -> Progress:
    return Progress(
        ranges_done=step,
        ranges=36,
        bytes_done=step * 100,
        bytes_total=3600,
        tokens=step * 1000,
        documents=step,
        quarantined=3,
        source_bytes=step * 4000,
        shards_done=1,
        shards=None,
        receipt=None,
    )


def test_json_display_writes_one_object_a_line(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    display = JsonDisplay()
    events: list[Event] = [Warned("two\nlines \u2028 and more"), progress_event(1)]
    for event in events:
        display(event)
        print("what a library has to say")
    display.close()
    shown = capfdbinary.readouterr()
    assert shown.err == b"what a library has to say\n" * 2
    lines = shown.out.split(b"\n")
    assert [json.loads(line)["event"] for line in lines[:-1]] == ["warned", "progress"]
    assert Planned.__name__.lower() == "planned"


class Narrow(RawIOBase):
    """An unbuffered stream that takes some bytes at a time, as a pipe does when a signal comes."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self.taken += bytes(data[:10])
        return min(len(data), 10)


def test_json_display_writes_whole_lines_to_an_unbuffered_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Narrow()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(stream, write_through=True))  # type: ignore[type-var]
    display = JsonDisplay()
    for step in (1, 2):
        display(progress_event(step))
    display.close()
    assert [json.loads(line)["event"] for line in stream.taken.splitlines()] == ["progress"] * 2
    assert not stream.closed


@dataclass
class Terminal:
    """A command on a terminal of its own; `shown` is every byte that it wrote there."""

    process: subprocess.Popen[bytes]
    master: int
    shown: bytes = b""

    def read_until(self, words: bytes) -> None:
        while words not in self.shown:
            chunk = self._read()
            assert chunk, f"the command ended without {words!r}: {self.shown!r}"

    def read_to_end(self) -> tuple[int, str]:
        while self._read():
            pass
        return self.process.wait(60), self.shown.decode()

    def _read(self) -> bytes:
        try:
            chunk = os.read(self.master, 65536)
        except OSError:  # what Linux says when the other side is closed
            chunk = b""
        self.shown += chunk
        return chunk


@contextlib.contextmanager
def terminal(bench: Bench, *arguments: str | Path, columns: int = 160) -> Iterator[Terminal]:
    master, slave = os.openpty()
    process = subprocess.Popen(
        arguments,
        cwd=bench.folder,
        preexec_fn=lambda: os.login_tty(slave),
        env=os.environ | {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "40"},
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def lines_on_screen(shown: str) -> list[str]:
    """What stands on the terminal in the end: carriage returns, moves up and erased lines are obeyed."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[\d;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", shown):
        if part == "\r":
            column = 0
        elif part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part == "\x1b[2K":
            lines[row] = ""
        elif re.fullmatch(r"\x1b\[\d+A", part):
            row -= int(part[2:-1])
        elif not part.startswith("\x1b"):
            lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + len(part) :]
            column += len(part)
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h"), "the cursor stays hidden"
    assert (row, column, lines[-1]) == (len(lines) - 1, 0, ""), "the prompt would not stand on a line of its own"
    return lines[:-1]


def assert_screen(shown: str, *patterns: str) -> None:
    lines = lines_on_screen(shown)
    assert len(lines) == len(patterns), lines
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(pattern, line), line


def test_terminal_shows_two_bars_and_the_end(bench: Bench) -> None:
    with terminal(bench, TOKJOB, "run", "job.yaml") as screen:
        code, shown = screen.read_to_end()
    assert code == 0
    assert_screen(
        shown,
        r"prepare    loading bytes, listing .*",
        r"plan       3 files .* engine bytes",
        r"tokenize   ━{23} 100%  .* tokens  .*/s  .*/s  \d+:\d\d *",
        r"build      ━{23} (\d+)/\1 shards *",
        r"done       120 read = 120 written \+ 0 quarantined .*",
        r"           .*/out/index.json   check it: tokjob verify .*",
    )
    assert shards_of(bench.output) == byte_shards(bench.documents)


@pytest.mark.parametrize(("columns", "bar"), [(80, 20), (40, 10)])
def test_bars_keep_within_a_narrow_terminal(columns: int, bar: int, bench: Bench) -> None:
    with (bench.source / "b.jsonl").open("ab") as file:
        file.write(b"not JSON\n")
    job = ["job.yaml", "--maxQuarantined", "1"]
    with terminal(bench, TOKJOB, "run", *job, columns=columns) as screen:
        code, shown = screen.read_to_end()
    assert code == 0
    bars = [line for line in lines_on_screen(shown) if line.startswith(("tokenize", "build"))]
    assert len(bars) == 2
    for line in bars:
        assert re.match(rf"\w+ +━{{{bar}}} ", line), line
        assert len(line.rstrip()) <= columns
    assert "100%" in bars[0]
    assert ("quarantined" in bars[0]) == (columns == 80)


LONG_RUN = ["job.yaml", "--rangeBytes", "64Ki", "--processes", "1", "--output.shards.tokens", "300000"]


@contextlib.contextmanager
def held_terminal(bench: Bench) -> Iterator[tuple[Terminal, Path]]:
    """A long run on a terminal, whose workers wait for a file: it cannot end before the test has done its part."""
    bench.texts["b.jsonl"] = sample_texts("b", 2500)
    (bench.source / "b.jsonl").write_bytes(json_lines(bench.texts["b.jsonl"]))
    gate = bench.folder / "gate"
    with terminal(bench, sys.executable, PROGRAMS / "gated_run.py", gate, *LONG_RUN) as screen:
        screen.read_until(b"shards")  # both bars are there, and nothing is being drawn
        yield screen, gate


def test_terminal_that_is_closed_stops_the_run_and_the_same_command_goes_on(bench: Bench) -> None:
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        pytest.skip("whoever started the tests ignores this signal, as nohup does")
    with held_terminal(bench) as (screen, gate):
        nobody = os.open(os.devnull, os.O_RDWR)
        os.dup2(nobody, screen.master)
        os.close(nobody)
        gate.touch()
        assert screen.process.wait(60) == 129
    assert not (bench.output / "index.json").exists()
    bench.run(("{tokens: 12000}", "{tokens: 300000}"))
    assert shards_of(bench.output) == byte_shards(bench.documents, shard_tokens=300_000)


def test_ctrl_c_on_a_terminal_leaves_it_clean_and_the_same_command_goes_on(bench: Bench) -> None:
    with held_terminal(bench) as (screen, gate):
        os.write(screen.master, b"\x03")
        screen.read_until(b"again to stop at once")
        gate.touch()
        code, shown = screen.read_to_end()
    assert code == 130
    assert_screen(
        shown,
        r"prepare    loading bytes, listing .*",
        r"plan       3 files .* engine bytes",
        r"",
        r"tokjob: stopping after the ranges under way; again to stop at once",
        r"tokenize   [━╸╺]{23} +\d+%  .*",
        r"build      [━╸╺]{23} \d+/\? shards *",
        r"tokjob: stopped; finished work is kept. The same command continues from here",
    )
    assert bench.tokjob("run", *LONG_RUN).code == 0
    assert shards_of(bench.output) == byte_shards(bench.documents, shard_tokens=300_000)
    assert leftovers(bench.output) == []


def test_error_on_a_terminal_comes_after_the_bars_and_leaves_it_clean(bench: Bench) -> None:
    with (bench.source / "b.jsonl").open("ab") as file:
        file.write(b"not JSON\n")
    with terminal(bench, TOKJOB, "run", "job.yaml") as screen:
        code, shown = screen.read_to_end()
    assert code == 4
    assert_screen(
        shown,
        r"prepare .*",
        r"plan .*",
        r"tokenize   ━{23} 100%  .* 1 quarantined  \d+:\d\d *",
        r"build      ━{23} (\d+)/\1 shards *",
        r"tokjob: QuarantineExceeded: 1 of 121 documents .*",
        r"  next: list the documents: tokjob show --quarantined .*; raise .*",
    )
