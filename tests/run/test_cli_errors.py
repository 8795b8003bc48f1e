"""What the real command line says to bad input: what, where, expected, found and next step; and nothing is lost.

Every row of `REFUSED` is a mistake that the plan phase must find: `tokjob run` and `tokjob plan` refuse it with one
message and one exit code, no byte and no folder changes anywhere, and the right command works afterwards.
"""

from __future__ import annotations

import base64
import json
import os
import random
import resource
import subprocess
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.command_line import (
    MANIFEST,
    Bench,
    Result,
    assert_told,
    byte_shards,
    mounted,
    obey_permissions,
    shards_of,
)
from support.corpus import json_lines, zstd
from support.runs import TOKJOB, leftovers, read_index
from tokenization_worker.api.manifest.manifest_file import read_manifest_file
from tokenization_worker.cli.main import main

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@dataclass(frozen=True)
class Refused:
    """A mistake: what is prepared in the bench, the arguments after `run`, the exit code and words of the message."""

    arguments: list[str]
    words: list[str]
    code: int = 2
    prepare: Callable[[Bench], object] = field(default=lambda bench: None)
    run_only: bool = False


def manifest(old: str, new: str) -> Callable[[Bench], object]:
    """A manifest in which `old` became `new`."""
    assert old in MANIFEST
    return lambda bench: bench.write("job.yaml", MANIFEST.replace(old, new))


def finished_with(text: str) -> Callable[[Bench], object]:
    """A complete dataset at the output, of a manifest that differs by `text`."""
    return lambda bench: bench.run(("{tokens: 12000}", text))


JOB = ["job.yaml"]
GPT2 = ["job.yaml", "--tokenizer", "gpt2"]

REFUSED: dict[str, Refused] = {
    # --- the manifest
    "manifest-missing": Refused(
        ["nope.yaml"], ["SpecNotFound: nope.yaml: No such file", "give the path of a manifest"]
    ),
    "manifest-is-a-folder": Refused(
        ["src"], ["SpecInvalid: src: expected a manifest", "found a folder", "--source src"]
    ),
    "no-job": Refused([], ["no job given", "name a manifest", "--source, --tokenizer and --output"]),
    "yaml-syntax": Refused(
        JOB,
        ["job.yaml: line 5, column", "not YAML", "tokjob validate FILE"],
        prepare=manifest("[src]", "[src"),
    ),
    "yaml-empty": Refused(JOB, ["job.yaml: the manifest is empty"], prepare=lambda b: b.write("job.yaml", "")),
    "yaml-not-utf8": Refused(
        JOB,
        ["job.yaml: expected a manifest", "found not UTF-8 at byte 2"],
        prepare=lambda b: b.write("job.yaml", b"a: \xff\n"[1:]),
    ),
    "field-typo": Refused(
        JOB,
        ["job.yaml: 1 mistake", 'spec.output.shard: unknown field; did you mean "shards"?', "tokjob validate"],
        prepare=manifest("shards:", "shard:"),
    ),
    "two-mistakes": Refused(
        JOB,
        ["job.yaml: 2 mistakes", "spec.output.uri: missing", 'spec.output.url: unknown field; did you mean "uri"?'],
        prepare=manifest("uri: out", "url: out"),
    ),
    "api-version": Refused(
        JOB,
        ['apiVersion: found "tokenization.dev/v1"', "expected tokenization.dev/v1alpha1"],
        prepare=manifest("v1alpha1", "v1"),
    ),
    "kind": Refused(
        JOB,
        ['kind: found "TokenisationJob"', "expected TokenizationJob"],
        prepare=manifest("kind: Tokenization", "kind: Tokenisation"),
    ),
    "rerun-token-missing": Refused(
        JOB,
        ["spec.rerunToken: output.uri holds {rerunToken}, which is not set", 'add rerunToken: "1"'],
        prepare=manifest("uri: out", 'uri: "out/{rerunToken}"'),
    ),
    # --- the command
    "flag-typo": Refused(
        ["job.yaml", "--output.shard.tokens", "5"],
        ["unknown flag --output.shard.tokens; did you mean --output.shards.tokens?", "--help"],
    ),
    "flag-unknown": Refused(["job.yaml", "--zzzzz"], ["unknown flag --zzzzz", "--help-all shows every flag"]),
    "argument-too-many": Refused(
        ["job.yaml", "src"], ["found 'src' after the manifest 'job.yaml'", "files to tokenize follow --source"]
    ),
    "continue": Refused(
        ["job.yaml", "--continue"],
        ["there is no --continue: every start continues where the last one stopped"],
        run_only=True,
    ),
    "processes-0": Refused(["job.yaml", "--processes", "0"], ["--processes: found '0', expected a whole number"]),
    "processes-text": Refused(["job.yaml", "--processes", "two"], ["--processes: found 'two', expected"]),
    "engine": Refused(
        ["job.yaml", "--engine", "fast"], ["invalid choice: 'fast'", "reference", "fastokens"], run_only=True
    ),
    "set-without-equals": Refused(
        ["job.yaml", "--set", "rangeBytes"], ["--set rangeBytes: expected FIELD=VALUE", "write = between"]
    ),
    "set-typo": Refused(
        ["job.yaml", "--set", "output.shard.tokens=5"], ['spec.output.shard: unknown field; did you mean "shards"?']
    ),
    "set-below-a-value": Refused(
        ["job.yaml", "--set", "output.uri.x=5"], ["spec.output.uri.x: uri is not a block of fields"]
    ),
    "set-no-value": Refused(
        ["job.yaml", "--set", "rangeBytes=[64Mi"],
        ["--set rangeBytes=[64Mi: line 2, column 1: not YAML", "quote it for the shell"],
    ),
    "flag-no-quantity": Refused(
        ["job.yaml", "--rangeBytes", "3q"], ['spec.rangeBytes: found "3q"; write a number of bytes', "256Mi"]
    ),
    # --- the tokenizer
    "tokenizer-near": Refused(
        ["job.yaml", "--tokenizer", "gpt22"],
        ["TokenizerUnavailable: tokenizer.name: 'gpt22'", "did you mean 'gpt2', 'gpt-2'", "tokenizer.json"],
    ),
    "tokenizer-far": Refused(
        ["job.yaml", "--tokenizer", "zzzzqqqq"], ["tokenizer.name: 'zzzzqqqq'", "known encodings: bytes", "cl100k_base"]
    ),
    "tokenizer-file-missing": Refused(
        ["job.yaml", "--tokenizer", "./nope.json"],
        ["tokenizer.uri:", "nope.json: there is no such file", "check the path"],
    ),
    "tokenizer-file-garbage": Refused(
        ["job.yaml", "--tokenizer", "job.yaml"],
        ["job.yaml: expected a tokenizer.json", "found a file that begins with b'apiVersion"],
    ),
    "delimiter-unknown": Refused(
        [*GPT2, "--tokenizer.delimiter.token", "<|eot|>"],
        [
            "tokenizer.delimiter: '<|eot|>' is not a special token of gpt2; it has '<|endoftext|>'",
            "leave tokenizer.delimiter out",
        ],
    ),
    "dtype-too-small": Refused(
        ["job.yaml", "--tokenizer", "cl100k_base", "--output.dtype", "UInt16"],
        ["output.dtype: UInt16 holds ids up to 65,535; this vocabulary has 100,277", "write UInt32, or Auto"],
    ),
    # --- the source
    "source-file-missing": Refused(
        ["job.yaml", "--source", "src/z.jsonl"],
        ["SourceInvalid: source.uris:", "src/z.jsonl' matches no file", "check the path"],
    ),
    "source-pattern-without-files": Refused(
        ["job.yaml", "--source", "src/*.parquet"], ["src/*.parquet' matches no file", "names beginning with '.' or '_'"]
    ),
    "source-folder-empty": Refused(
        ["job.yaml", "--source", "empty"], ["/empty' matches no file"], prepare=lambda b: (b.folder / "empty").mkdir()
    ),
    "second-pattern-without-files": Refused(
        ["job.yaml", "--source", "src", "--source", "sr"], ["/sr' matches no file"]
    ),
    "text-field": Refused(
        ["job.yaml", "--source.textField", "content"],
        ["a.jsonl: none of its first 40 records has a text at 'content' (MissingText)", "fields found: 'id', 'text'"],
    ),
    "json-array": Refused(
        ["job.yaml", "--source", "a.json"],
        [
            "SourceInvalid: ",
            "a.json: expected lines that are JSON objects with a text at 'text', found none",
            "jq -c '.[]' < ",
            "/lines-a.json",
        ],
        prepare=lambda b: b.write("a.json", json.dumps([{"text": "a"}] * 9, indent=1)),
    ),
    "json-array-on-one-line": Refused(
        ["job.yaml", "--source", "a.json"],
        ["a.json: expected one JSON object a line, found a JSON array", "jq -c '.[]' < "],
        prepare=lambda b: b.write("a.json", json.dumps([{"text": "a"}])),
    ),
    "json-array-on-one-long-line": Refused(
        ["job.yaml", "--source", "a.json"],
        ["a.json: expected lines that are JSON objects", "jq -c '.[]' < "],
        prepare=lambda b: b.write("a.json", json.dumps([{"text": "a" * 1000}] * 3000)),
    ),
    "random-bytes": Refused(
        ["job.yaml", "--source", "a.jsonl"],
        ["SourceInvalid: ", "a.jsonl: expected lines that are JSON objects", "InvalidJson", "set source.format"],
        prepare=lambda b: b.write("a.jsonl", random.Random(1).randbytes(5000)),
    ),
    "text-field-of-parquet": Refused(
        ["job.yaml", "--source", "p.parquet"],
        ["SchemaMismatch", "p.parquet", "'text'", "body", "set source.textField"],
        code=4,
        prepare=lambda b: pq.write_table(pa.table({"body": ["a"]}), b.folder / "p.parquet"),
    ),
    "format-undecidable": Refused(
        ["job.yaml", "--source", "part-0"],
        ["cannot detect the format of", "part-0: no known suffix, and it begins with b'plain text'", "source.format"],
        prepare=lambda b: b.write("part-0", "plain text"),
    ),
    # --- the output
    "output-in-source-folder": Refused(
        ["job.yaml", "--output", "src/out"],
        ["output.uri:", "src/out lies in the source", "src/out/train/train_000000.npy", "write outside of the source"],
    ),
    "output-in-source-pattern": Refused(
        ["job.yaml", "--source", "src/**", "--output", "src/out"], ["src/out lies in the source", "src/** would match"]
    ),
    "output-holds-source": Refused(
        ["job.yaml", "--output", "."], ["output.uri:", "holds a source file:", "src/a.jsonl", "narrow source.uris"]
    ),
    "output-below-a-file": Refused(
        ["job.yaml", "--output", "job.yaml/out"], ["OutputNotWritable", "job.yaml is a file; the output needs a folder"]
    ),
    "output-is-a-file": Refused(
        ["job.yaml", "--output", "job.yaml"], ["OutputNotWritable", "job.yaml is a file; the output needs a folder"]
    ),
    "output-where-no-folder-can-be": Refused(
        ["job.yaml", "--output", "/proc/out"], ["OutputNotWritable: cannot write", "/proc/out", "permissions"]
    ),
    "output-foreign-shard": Refused(
        JOB,
        ["OutputConflict:", "out/train/train_000007.npy has a name that output.path gives to shards", "move it away"],
        code=3,
        prepare=lambda b: b.write("out/train/train_000007.npy", b"theirs"),
    ),
    "output-foreign-index": Refused(
        JOB,
        ["OutputConflict:", "out/index.json was not written by this program", "another output.uri"],
        code=3,
        prepare=lambda b: b.write("out/index.json", b"theirs"),
    ),
    "output-foreign-plan": Refused(
        JOB,
        ["OutputConflict:", "out/_tokenization/plan is not a plan that this version can read", "another output.uri"],
        code=3,
        prepare=lambda b: b.write("out/_tokenization/plan", b"theirs"),
    ),
    "output-of-another-job": Refused(
        JOB,
        [
            "OutputConflict:",
            "out holds a complete dataset of other data: output.shards.tokens: the job says 12000, the output has 9000",
            "put the field back",
            "remove the folder yourself",
        ],
        code=3,
        prepare=finished_with("{tokens: 9000}"),
    ),
    "output-of-another-job-unfinished": Refused(
        ["job.yaml", "--source.idField", "key"],
        [
            "OutputConflict:",
            "out holds an unfinished run of other data: source.idField: the job says key, the output has id",
            "tokjob clean",
        ],
        code=3,
        prepare=lambda bench: bench.stop(),
    ),
    "output-of-other-files": Refused(
        ["job.yaml", "--source", "src/a.jsonl"],
        ["OutputConflict:", "out holds a complete dataset of other data: the source", "another output.uri"],
        code=3,
        prepare=lambda bench: bench.run(),
    ),
    "shard-number-too-wide": Refused(
        ["job.yaml", "--output.path", "{split}_{index:01d}", "--output.shards.tokens", "500"],
        ["output.path: {split}_{index:01d} has 1 digit for shard", "give it", "ask for larger shards (output.shards)"],
    ),
    "split-empty": Refused(
        ["job.yaml", "--output.splits", "[{name: test, shards: 100}, {name: train}]"],
        ["SplitEmpty: output.splits: split 'train' would hold no tokens", "ask for fewer leading shards"],
    ),
}


@dataclass(frozen=True)
class Outcome:
    """What the command said to a mistake, and all files before and after."""

    bench: Bench
    result: Result
    before: dict[str, bytes]
    after: dict[str, bytes]


@pytest.fixture(scope="session")
def refusals(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Future[Outcome]]:
    """The real command line on every mistake that is tested in this session, as many at once as there are cores."""

    def refuse(name: str, bench: Bench) -> Outcome:
        mistake = REFUSED[name]
        mistake.prepare(bench)
        before = bench.files()
        return Outcome(bench, bench.tokjob("run", *mistake.arguments), before, bench.files())

    chosen = [item.callspec.params["name"] for item in request.session.items if "refusals" in item.fixturenames]
    benches = {name: Bench(tmp_path_factory.mktemp(name)) for name in chosen}  # mktemp is not for threads
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
        return {name: threads.submit(refuse, name, bench) for name, bench in benches.items()}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_in_the_plan_with_a_message_and_nothing_is_touched(
    name: str,
    refusals: dict[str, Future[Outcome]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mistake, outcome = REFUSED[name], refusals[name].result()
    bench, result = outcome.bench, outcome.result

    assert_told(result, mistake.code, *mistake.words)
    assert outcome.after == outcome.before
    if not mistake.run_only:
        monkeypatch.chdir(bench.folder)
        assert call_main("plan", *mistake.arguments) == mistake.code
        assert capsys.readouterr().err.replace("tokjob plan", "tokjob run") == result.err
        assert bench.files() == outcome.before

    # What was meant, to an output that is free, gives the right bytes.
    for source, texts in bench.texts.items():
        (bench.source / source).write_bytes(json_lines(texts))
    bench.run(("uri: out", f"uri: {bench.folder}/right"), ("tokens: 12000", "tokens: 100000"))
    assert shards_of(bench.folder / "right") == byte_shards(bench.documents, shard_tokens=100_000)


def test_bad_lines_before_good_ones_and_a_limit_of_all_are_no_reason_to_refuse(bench: Bench) -> None:
    bench.write("late.jsonl", b"not JSON\n" * 5000 + json_lines(["good"] * 9))
    bench.write("never.jsonl", b"not JSON\n" * 50)
    late = bench.tokjob("plan", "job.yaml", "--source", "late.jsonl", "--maxQuarantined", "5000")
    assert (late.code, "warning" in late.out) == (0, False), late.err
    assert bench.tokjob("plan", "job.yaml", "--source", "late.jsonl").code == 4, "it is read whole, and over the limit"
    assert bench.tokjob("plan", "job.yaml", "--source", "never.jsonl").code == 2
    both = ["plan", "job.yaml", "--source", "never.jsonl", "--source", "src", "--maxQuarantined"]
    assert (bench.tokjob(*both, "50").code, bench.tokjob(*both, "49").code) == (0, 4)
    allowed = bench.tokjob("plan", "job.yaml", "--source", "never.jsonl", "--maxQuarantined", "100%")
    assert (allowed.code, "warning    SourceInvalid" in allowed.out) == (0, True), allowed.err


def call_main(*arguments: str) -> int:
    try:
        return main(arguments)
    except SystemExit as end:  # how argparse ends
        return int(str(end.code))


def test_every_message_says_what_to_do_next(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert call_main("run", str(bench.folder / "nope.yaml")) == 2
    assert "\n  next: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rum"], ["unknown command 'rum'; did you mean 'run'?", "plan, validate"]),
        (["zzz"], ["unknown command 'zzz' (commands: run, train, plan"]),
        (["--zzz"], ["--zzz"]),
        (["status"], ["required: output"]),
        (["clean"], ["required: output"]),
        (["validate"], ["required: manifests"]),
        (["verify", "nowhere"], ["NotADataset:", "nowhere does not exist", "check the path"]),
        (["clean", "nowhere"], ["NotAnOutput:", "nowhere does not exist", "check the path"]),
        (["validate", "job.yaml", "nope.yaml"], ["SpecNotFound: nope.yaml"]),
        (["status", "out", "--jsno"], ["unknown flag --jsno; did you mean --json?", "next: tokjob status --help"]),
        (["verify", "out", "--digets"], ["unknown flag --digets; did you mean --digest?"]),
        (["show", "out", "--tokne", "5"], ["unknown flag --tokne; did you mean --token?"]),
        (["clean", "out", "--dryrun"], ["unknown flag --dryrun; did you mean --dry-run?"]),
        (["crd", "--wirte", "x"], ["unknown flag --wirte; did you mean --write?"]),
        (["crd", "--write", "job.yaml"], ["OutputNotWritable: cannot write job.yaml: File exists", "give --write a"]),
        (["crd", "--write", "job.yaml/x"], ["OutputNotWritable: cannot write job.yaml/x: Not a directory"]),
        (["crd", "--write", "/proc/x"], ["OutputNotWritable: cannot write /proc/x: No such file or directory"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].islower() else "",
)
def test_other_commands_refuse_bad_input_with_a_message(arguments: list[str], words: list[str], bench: Bench) -> None:
    assert_told(bench.tokjob(*arguments), 2, *words)


# --- permissions and disks


@pytest.fixture(scope="session")
def may_obey() -> None:
    """Skips where root cannot give up the capability to ignore the modes of files."""
    try:
        subprocess.run([TOKJOB, "--version"], preexec_fn=obey_permissions, check=True, capture_output=True)
    except subprocess.SubprocessError:
        pytest.skip("root without the right to give up its capabilities")


@pytest.mark.usefixtures("may_obey")
@pytest.mark.parametrize(
    ("command", "place", "mode", "reason"),
    [
        ("run", "src", 0o000, "SourceNotReadable"),
        ("run", "src", 0o444, "SourceNotReadable"),
        ("run", "src/b.jsonl", 0o000, "SourceNotReadable"),
        ("run", "out", 0o555, "OutputNotWritable"),
        ("plan", "out", 0o555, "OutputNotWritable"),
    ],
    ids=["source-folder", "source-folder-listed-only", "source-file", "output", "output-in-a-plan"],
)
def test_missing_permission_is_refused_in_the_plan(
    command: str, place: str, mode: int, reason: str, bench: Bench
) -> None:
    bench.output.mkdir()
    before = bench.files()
    path = bench.folder / place
    usual = path.stat().st_mode
    path.chmod(mode)
    try:
        result = bench.tokjob(command, "job.yaml", preexec=obey_permissions)
    finally:
        path.chmod(usual)
    words = [f"as user {os.geteuid()}"] if reason == "SourceNotReadable" else []
    assert_told(result, 2, reason, str(path), "Permission denied", "next: ", *words)
    assert bench.files() == before
    bench.run()
    assert shards_of(bench.output) == byte_shards(bench.documents)


@pytest.mark.usefixtures("may_obey")
def test_file_without_permission_is_refused_in_the_plan_also_where_the_plan_reads_none_of_it(bench: Bench) -> None:
    for number in range(60):
        bench.write(f"src/b{number:02d}.jsonl", json_lines(["short"]))
    before = bench.files()
    for number in (0, 58):  # the plan reads a few files, spread over all of them
        path = bench.source / f"b{number:02d}.jsonl"
        path.chmod(0)
        try:
            result = bench.tokjob("run", "job.yaml", preexec=obey_permissions)
        finally:
            path.chmod(0o644)
        assert_told(result, 2, "SourceNotReadable", str(path), "Permission denied")
        assert bench.files() == before


@pytest.mark.parametrize("command", ["run", "plan"])
def test_read_only_disk_is_refused_in_the_plan(command: str, bench: Bench) -> None:
    with mounted(bench.folder / "disk", "4m") as disk:
        disk.make_read_only()
        result = bench.tokjob(command, "job.yaml", "--output", "disk/out")
        assert_told(result, 2, "OutputNotWritable", "disk/out", "Read-only file system", "check the path")


@pytest.mark.parametrize("command", ["run", "plan"])
def test_disk_too_small_is_refused_in_the_plan(command: str, bench: Bench) -> None:
    with mounted(bench.folder / "disk", "48k") as disk:
        result = bench.tokjob(command, "job.yaml", "--output", "disk/out")
        assert_told(result, 5, "OutputFull:", "disk/out: this run needs about ", " kB are free", "free space there")
        assert not any(disk.folder.iterdir())
        disk.resize("4m")
        assert bench.tokjob("run", "job.yaml", "--output", "disk/out").code == 0
        assert shards_of(disk.folder / "out") == byte_shards(bench.documents)


@pytest.mark.parametrize("command", ["status", "verify", "clean", "show"])
def test_what_is_almost_a_uri_is_no_folder(command: str, bench: Bench) -> None:
    result = bench.tokjob(command, "gs:/bucket/out")
    assert_told(result, 2, "SpecInvalid: 'gs:/bucket/out' is neither a URI nor a path", "write gs://bucket/path")


def test_disk_that_may_be_too_small_is_told_and_tried(bench: Bench) -> None:
    """An estimate may be far off, and a full disk loses nothing."""
    with mounted(bench.folder / "disk", "160k") as disk:
        planned = bench.tokjob("plan", "job.yaml", "--output", "disk/out")
        assert (planned.code, "the run may stop when the disk is full" in planned.out) == (0, True), planned
        disk.resize("4m")
        assert bench.tokjob("run", "job.yaml", "--output", "disk/out").code == 0
        assert shards_of(disk.folder / "out") == byte_shards(bench.documents)


def write_deceptive_source(bench: Bench) -> list[str]:
    """A file whose beginning, all that the plan looks at, promises a quarter of the tokens that there are."""
    chance = np.random.default_rng(7)
    texts = [chance.bytes(4000).hex() for _ in range(100)] + ["a" * 50_000] * 60
    (bench.source / "b.jsonl").write_bytes(zstd.compress(json_lines(texts)))
    bench.texts["b.jsonl"] = texts
    return bench.documents


def test_disk_that_fills_up_in_the_middle_stops_the_run_and_the_same_command_goes_on(bench: Bench) -> None:
    documents = write_deceptive_source(bench)
    command = ["run", "job.yaml", "--output", "disk/out", "--output.shards.tokens", "200000"]
    with mounted(bench.folder / "disk", "5m") as disk:
        output = disk.folder / "out"
        result = bench.tokjob(*command)
        assert_told(
            result, 5, "OutputFull: cannot write", str(output), "No space left on device", "finished work is kept"
        )
        assert not (output / "index.json").exists()
        assert not (output / "_tokenization" / "tmp").exists()
        disk.resize("64m")
        assert bench.tokjob(*command).code == 0
        assert shards_of(output) == byte_shards(documents, shard_tokens=200_000)
        assert leftovers(output) == []


def test_disk_that_something_else_fills_stops_the_run_and_the_same_command_goes_on(bench: Bench) -> None:
    with (bench.source / "b.jsonl").open("ab") as file:
        file.write(b"not JSON\n")
    command = ["run", "job.yaml", "--output", "disk/out"]
    with mounted(bench.folder / "disk", "4m") as disk:
        assert bench.tokjob(*command).code == 4
        fill(disk.folder / "ballast")
        result = bench.tokjob(*command, "--maxQuarantined", "1")
        assert_told(result, 5, "OutputFull", "No space left on device", "start the same command again")
        (disk.folder / "ballast").unlink()
        assert bench.tokjob(*command, "--maxQuarantined", "1").code == 0
        assert shards_of(disk.folder / "out") == byte_shards(bench.documents)
        assert leftovers(disk.folder / "out") == []


TEMPORARY: dict[str, tuple[str, list[str]]] = {
    # size of the disk, and who writes there more than it takes
    "a long list of unusable documents": ("4m", []),
    "a rank file for the accelerated engine": ("64k", ["--tokenizer", "cl100k_base", "--engine", "fastokens"]),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("size", "more"), TEMPORARY.values(), ids=TEMPORARY)
def test_full_temporary_folder_stops_the_run_and_the_same_command_goes_on_with_another(
    size: str, more: list[str], bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [b"\xff" + base64.b64encode(os.urandom(147)) for _ in range(100_000)]  # packed, they are long still
    pq.write_table(pa.table({"text": texts}), bench.source / "z.parquet")  # one row group: one range has the list
    command = ["run", "job.yaml", "--maxQuarantined", "100%", *more]
    with mounted(bench.folder / "disk", size) as disk:
        monkeypatch.setenv("TMPDIR", str(disk.folder))
        told = [f"TemporaryFolderFull: cannot write temporary files in {disk.folder}: No space left", "set TMPDIR to"]
        assert_told(bench.tokjob(*command), 5, *told)
        assert not (bench.output / "index.json").exists()
        assert not any(disk.folder.iterdir())
    monkeypatch.delenv("TMPDIR")
    assert_told(bench.tokjob(*command), 0)
    assert sum(split["documents"] for split in read_index(bench.output)["splits"]) == len(bench.documents)


def fill(ballast: Path) -> None:
    """Write zeros until the disk is full."""
    with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(4096))


def test_file_size_limit_stops_the_run_and_the_same_command_goes_on(bench: Bench) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    result = bench.tokjob("run", "job.yaml", preexec=limit)
    assert_told(result, 2, "FileSizeLimit: cannot write", "20,000 bytes at most", "start the same command again")
    assert bench.tokjob("run", "job.yaml").code == 0
    assert shards_of(bench.output) == byte_shards(bench.documents)
    assert leftovers(bench.output) == []


@pytest.mark.parametrize("value", ["0", "-3", "two"])
@pytest.mark.parametrize(
    ("command", "flag"), [("verify", "--sample-one-in"), ("verify", "--processes"), ("show", "--count")]
)
def test_number_below_one_is_refused(command: str, flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "out", flag, value])
    assert stop.value.code == 2
    assert f"{flag}: found '{value}', expected a whole number, at least 1" in capsys.readouterr().err


def test_a_pipe_without_a_writer_is_named_and_not_waited_for(bench: Bench) -> None:
    os.mkfifo(bench.folder / "pipe")
    for command in ("validate", "run"):
        told = bench.tokjob(command, "pipe")
        assert_told(told, 2, "SpecInvalid", "found a pipe to which no program writes")


def test_a_manifest_may_come_through_a_pipe(bench: Bench) -> None:
    """As `tokjob validate <(kustomize build)` gives it: the program that writes may need its time."""
    reader, writer = os.pipe()
    try:
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(read_manifest_file, Path(f"/dev/fd/{reader}"))
            os.write(writer, MANIFEST[:100].encode())
            os.write(writer, MANIFEST[100:].encode())
            os.close(writer)
            assert found.result() == MANIFEST
    finally:
        os.close(reader)
