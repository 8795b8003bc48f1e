"""What the command line says to a mistake: where it is, what was expected, and what to type instead."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.runs import TOKJOB
from tokenization_worker.cli.main import main
from tokenization_worker.storage.source_file import SourceFile, describe_file

JOB = "--source data --tokenizer bytes --output out"

Answer = Callable[..., str]


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Answer:
    """Runs a command in a folder with `data/a.jsonl`; returns what standard error says, and checks the exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text('{"text": "some words of a document"}\n' * 10)

    def ask(typed: str, code: int = 2) -> str:
        try:
            found = main(shlex.split(typed))
        except SystemExit as left:
            found = int(left.code or 0)
        told = capsys.readouterr().err
        assert found == code, told
        assert "Traceback" not in told
        return told

    return ask


@pytest.mark.parametrize(
    "flag",
    [
        "--rangeBytes",
        "--maxQuarantined",
        "--output.shards.tokens",
        "--documents.maxBytes",
        "--output.splits",
        "--tokenizer.specialTokens",
    ],
)
def test_a_number_of_thousands_of_digits_is_a_short_message(flag: str, answer: Answer) -> None:
    told = answer(f"run {JOB} {flag} {'9' * 5_000}")
    assert f"SpecInvalid: {flag} 9999" in told
    assert "a number of 5,000 characters, expected at most 9,223,372,036,854,775,807" in told
    assert len(told) < 1000


@pytest.mark.parametrize(("flag", "words"), [("--processes", "expected a whole number"), ("--ray-address h", "HOST:")])
def test_a_count_and_a_port_of_thousands_of_digits_are_refused(flag: str, words: str, answer: Answer) -> None:
    separator = ":" if "ray" in flag else " "
    assert words in answer(f"run {JOB} --executor ray {flag}{separator}{'9' * 5_000}")


@pytest.mark.parametrize(
    "command", ["status z", f"run {JOB}", "plan job.yaml", "verify z", "show z", "clean z", "validate z"]
)
def test_a_current_folder_that_is_gone_is_named(
    command: str, answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = io.StringIO()
    monkeypatch.setattr("sys.stdout", printed)
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    told = answer(command)
    assert "SpecInvalid: the current folder does not exist any more" in told
    assert "next: cd to a folder that exists" in told
    assert not printed.getvalue()


FLAGS = {
    "--source --tokenizer bytes": "--source has no value: --tokenizer, which is a flag, follows it",
    f"{JOB} --maxQuarantined 2 %": "found % after a blank: write 2% without the blank",
    "job.yaml --maxQuarantined=2 %": "write 2% without the blank",
    f"{JOB} --maxQuarantined '2 %'": 'found "2 %"; write 2% without the blank (a count such as 10',
    "--input x": "there is no --input: --source takes the files",
    "-i x": "there is no -i: --source takes",
    "--data x": "there is no --data: --source takes",
    "--model gpt2": "there is no --model: --tokenizer takes a name",
    "-o x": "there is no -o: --output takes the folder",
    "--out x": "there is no --out: --output takes the folder",
    "--output-path x": "--output.path says how its shards are called",
    "--verbose": "there is no --verbose: a run has one display; --json",
    "--shuffle": "there is no --shuffle: --output.shuffle.seed 0 shuffles all documents",
    "--dry-run": "there is no --dry-run: tokjob plan",
    "--shard-size 5": "there is no --shard-size: --output.shards.tokens N",
    "--append-eos": "--tokenizer.delimiter.position After",
    "--add-eos": "--tokenizer.delimiter.begin TOKEN and --tokenizer.delimiter.end OTHER",
    "--append-bos": "--tokenizer.delimiter.position Before",
    "-f job.yaml": "a manifest is given without a flag: tokjob run job.yaml",
    "--text_field x": "unknown flag --text_field; did you mean --source.textField?",
    "--max-quarantined 5": "unknown flag --max-quarantined; did you mean --maxQuarantined?",
    "--tokeniser gpt2": "unknown flag --tokeniser; did you mean --tokenizer?",
    "--outptu x": "unknown flag --outptu; did you mean --output?",
    "\u2014source data": "'\u2014', which is no hyphen; write --source with two hyphens",
    "\u2013\u2013rangeBytes=1M": "write --rangeBytes with two hyphens",
}


@pytest.mark.parametrize(("typed", "words"), FLAGS.items(), ids=FLAGS)
def test_a_flag_of_another_tool_is_told_what_to_write(typed: str, words: str, answer: Answer) -> None:
    assert words in answer(f"run {typed}")


@pytest.mark.parametrize("flag", ["--inptu", "--inputs-from", "--corpora", "--helpme-x", "--loud"])
def test_no_flag_is_suggested_for_a_word_that_is_like_none(flag: str, answer: Answer) -> None:
    told = answer(f"run {JOB} {flag} x")
    assert f"unknown flag {flag}\n" in told


@pytest.mark.parametrize("flag", ["--source", "--tokenizer", "--output"])
def test_curly_quotes_around_a_value_are_no_part_of_it(flag: str, answer: Answer) -> None:
    told = answer(f"run {flag} \u201cdata\u201d")
    assert f"{flag} \u201cdata\u201d: '\u201c' is no quote for a shell" in told


def test_a_file_whose_name_begins_with_a_curly_quote_is_read(answer: Answer, tmp_path: Path) -> None:
    (tmp_path / "\u201ca.jsonl").write_text('{"text": "words"}\n')
    answer("run --source \u201ca.jsonl --tokenizer bytes --output out", 0)


def test_help_is_a_command_too(answer: Answer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    assert "commands:\n  run " in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["help", "plan"])
    assert "usage: tokjob plan" in capsys.readouterr().out


def test_flags_before_the_command_are_told_where_they_stand(answer: Answer) -> None:
    assert "flags stand after the command: tokjob run --processes ..." in answer("--processes 2 run")
    assert "did you mean 'run'?" in answer("tokenise")


CHAT = json.dumps({"messages": [{"role": "user", "content": "Hi"}, {"role": "bot", "content": "Hello"}]}) + "\n"
CONVERTED = {
    "t x.csv": b"text,n\nwords,1\n",
    "t x.csv.gz": gzip.compress(b"text,n\nwords,1\n"),
    "wide $x.jsonl": '{"text": "words"}\n'.encode("utf-16"),
    "it's.jsonl": (CHAT * 5).encode(),
    "chat.jsonl.gz": gzip.compress((CHAT * 5).encode()),
}


@pytest.mark.parametrize("name", CONVERTED)
def test_a_command_to_paste_works_from_where_the_job_was_started(name: str, answer: Answer, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    source = tmp_path / "sub" / name
    source.write_bytes(CONVERTED[name])
    told = answer(
        f"run --source {shlex.quote(f'sub/{name}')} --tokenizer bytes --output out", 4 if "wide" in name else 2
    )
    command = re.split(r"; (?:then give|or raise)", told.partition("next: ")[2].strip())[0]
    command = re.sub(r"^.*?(?=test -f|python3 -c|iconv)", "", command, flags=re.DOTALL)
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, timeout=60)
    [made] = [path for path in (tmp_path / "sub").iterdir() if path != source]
    assert json.loads(made.read_text().splitlines()[0])["text"]
    made.unlink()
    source.unlink()
    assert subprocess.run(["sh", "-c", command], cwd=tmp_path, check=False, capture_output=True).returncode
    assert not list((tmp_path / "sub").iterdir())


@pytest.mark.parametrize(
    ("line", "words"),
    [('{"text": "words"},', "a line ends in a comma"), ("{'text': 'words'}", "a line is a dictionary of Python")],
    ids=["commas", "single quotes"],
)
@pytest.mark.parametrize("count", [1, 5])
def test_lines_that_are_almost_json_get_the_command_that_corrects_them(
    line: str, words: str, count: int, answer: Answer, tmp_path: Path
) -> None:
    (tmp_path / "b.jsonl").write_text(f"{line}\n" * count)
    for command in ("plan", "run"):
        told = answer(f"{command} --source b.jsonl --tokenizer bytes --output out", 2 if count > 1 else 4)
        assert words in told
        converted = re.search(r"(?:sed|python3 -c) .* > [^;\n]*", told)
        assert converted is not None
        subprocess.run(["sh", "-c", converted[0]], cwd=tmp_path, check=True, timeout=60)
        lines = (tmp_path / "lines-b.jsonl").read_text().splitlines()
        assert [json.loads(each) for each in lines] == [{"text": "words"}] * count


DOCS = [json.dumps({"text": f"document {number}"}) for number in range(12)]
ONE_FAULT = {
    "an array over lines": ("x.json", "[\n" + ",\n".join(DOCS) + "\n]\n", "jq -c '.[]' < ", "/lines-x.json; "),
    "an array that opens on its first line": ("x.jsonl", "[" + ",\n".join(DOCS) + "]\n", "jq -c '.[]' < ", "/lines-x"),
    "objects on one line": ("x.jsonl", "".join(DOCS), "jq -c . < ", "/lines-x.jsonl; "),
    "a line of two objects": ("x.jsonl", DOCS[0] + "\n".join(DOCS), "jq -c . < ", "/lines-x.jsonl; "),
    "a list in an object": ("x.json", '{"data": [' + ", ".join(DOCS) + "]}", "jq -c '.data[]' < ", "/lines-x.json; "),
    "such a list over lines": (
        "x.json",
        json.dumps({"my data": [json.loads(each) for each in DOCS]}, indent=1),
        "jq -c '.[\"my data\"][]' < ",
        "/lines-x.json; ",
    ),
    "strings": ("x.jsonl", '"some words"\n' * 5, "each line is a JSON string", "jq -c '{text: .}' < "),
    "some NaN": ("x.jsonl", DOCS[0] + '\n{"text": "a", "n": NaN}\n', "NaN or Infinity", "not strict JSON"),
    "all NaN": ("x.jsonl", '{"text": "a", "n": -Infinity}\n' * 5, "NaN or Infinity", "not strict JSON"),
    "a packed array": ("x.json.gz", "[" + ", ".join(DOCS) + "]", "zcat ", "/lines-x.json; "),
    "a packed array over lines": ("x.json.gz", "[\n" + ",\n".join(DOCS) + "\n]", "zcat ", "/lines-x.json; "),
}
FEW = {
    "an array over lines",
    "a packed array over lines",
    "objects on one line",
    "a line of two objects",
    "some NaN",
}
"""Faults with fewer unusable records than refuse a source, or with a record that is none."""


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize("fault", ONE_FAULT)
def test_lines_with_one_fault_get_the_command_that_corrects_it(
    fault: str, command: str, answer: Answer, tmp_path: Path
) -> None:
    name, content, *words = ONE_FAULT[fault]
    data = content.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    told = answer(f"{command} --source {name} --tokenizer bytes --output out", 4 if fault in FEW else 2)
    assert [word for word in words if word not in told] == []
    assert "; then give the new file to source.uris in place of the old one, or move the old one away" in told
    assert "write one JSON object a line" not in told
    if shutil.which("jq"):
        printed = re.search(r"(?:test -f [^;]*|jq|python3) .*(?=; then give)", told)
        assert printed is not None
        subprocess.run(["sh", "-c", printed[0]], cwd=tmp_path, check=True, timeout=60)
        [made] = tmp_path.glob("lines-*")
        assert all(isinstance(json.loads(line)["text"], str) for line in made.read_text().splitlines())


def test_the_command_for_nan_writes_null(answer: Answer, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"text": "a", "n": [NaN, 1]}\n\n' * 3)
    told = answer("run --source x.jsonl --tokenizer bytes --output out")
    command = told[told.index("python3 -c ") :].partition("; then give")[0]
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, timeout=60)
    lines = (tmp_path / "lines-x.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"text": "a", "n": [None, 1]}] * 3


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_limit_below_all_texts_is_told_and_no_other_field(command: str, answer: Answer, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"text": "some words"}\n' * 5)
    told = answer(f"{command} --source x.jsonl --tokenizer bytes --output out --documents.maxBytes 5", 4)
    assert "raise documents.maxBytes: nearly all texts are larger" in told
    assert "did you mean" not in told


def test_the_run_of_a_small_text_that_is_not_utf8_has_the_hint_of_its_plan(answer: Answer, tmp_path: Path) -> None:
    (tmp_path / "roman.txt").write_bytes(
        ("Les \u00e9l\u00e8ves \u00e9tudiaient d\u00e9j\u00e0. " * 20).encode("latin-1")
    )
    told = answer("run --source roman.txt --tokenizer bytes --output out", 4)
    assert "QuarantineExceeded: 1 of 1 document is unusable (InvalidUtf8 1)" in told
    assert (
        f"iconv -f ISO-8859-1 -t UTF-8 < {tmp_path}/roman.txt > {tmp_path}/utf8-roman.txt; then give the new file"
        in told
    )
    assert "to source.uris in place of the old one, or move the old one away; list the documents" in told


def test_texts_that_are_too_large_are_told_the_field_that_allows_them(answer: Answer) -> None:
    told = answer(f"run {JOB} --documents.maxBytes 5", 4)
    assert "DocumentTooLarge 10" in told
    assert "or raise documents.maxBytes for texts that are larger than it allows, and start a new run: write" in told
    assert "`tokjob clean` this output" in told


MANIFEST = """\
apiVersion: tokenization.dev/v1alpha1
kind: TokenizationJob
metadata: {name: first}
spec:
  source: {uris: [data]}
  tokenizer: {name: bytes}
  output: {uri: out}
"""
MANIFESTS = {
    "UTF-16 without a mark": (MANIFEST.encode("utf-16-le"), "the manifest is UTF-16", "iconv -f UTF-16LE -t UTF-8 < m"),
    "Latin-1": (
        MANIFEST.replace("[data]", "[\u00e9t\u00e9]").encode("latin-1"),
        "the manifest is not UTF-8 at byte 108",
        "iconv -f ISO-8859-1 -t UTF-8 < m",
    ),
    "UTF-32": (MANIFEST.encode("utf-32"), "the manifest is UTF-32", "iconv -f UTF-32 -t UTF-8 < m"),
    "UTF-32 without a mark": (MANIFEST.encode("utf-32-be"), "the manifest is UTF-32", "iconv -f UTF-32BE -t"),
    "a wrong indent": (
        MANIFEST.replace("  tokenizer", "   tokenizer").encode(),
        "line 6, column 4: not YAML: while parsing a block mapping, did not find expected key",
        "; indent all fields of a block by the same number of spaces\n",
    ),
    "a no-break space": (
        MANIFEST.replace("  source", "\u00a0 source").replace("  tokenizer", "   tokenizer").encode(),
        "did not find expected key",
        "; line 5, column 1 is a no-break space, and no space",
    ),
    "a no-break space in a name": (
        MANIFEST.replace("  output", "\u00a0 output").encode(),
        "output: a no-break space (U+00A0) is part of the name: write a space",
        "next: ",
    ),
    "a backslash in double quotes": (
        MANIFEST.replace("[data]", '["data\\c1"]').encode(),
        "found unknown escape character",
        "use single quotes, 'C:\\data'",
    ),
    "large records": (b'{"text": "words of a text"}\n' * 70_000, "found 2.0 MB of JSON records", "--source m"),
    "one large record": (b'{"text": "' + b"x" * 2_000_000 + b'"}', "found 2.0 MB of JSON records", "--source m"),
    "nothing": (b"# to be written\n---\n", "the manifest is empty", "--print-manifest prints one"),
    "a glob": (MANIFEST.replace("[data]", "[*.txt]").encode(), "not YAML", "put a text that begins with * in quotes"),
    "a token": (
        MANIFEST.replace("{uri: out}", "\n    uri: {rerunToken}").encode(),
        "spec.output.uri: found a mapping of names to values; expected text: write it in quotes, '{rerunToken}'",
        "next: ",
    ),
    "a token in a path": (
        MANIFEST.replace("{uri: out}", "{uri: out/{rerunToken}}").encode(),
        "not YAML",
        "put a text with {, }, [ or ] in quotes",
    ),
}


@pytest.mark.parametrize(("content", "words", "step"), MANIFESTS.values(), ids=MANIFESTS)
def test_a_file_that_is_no_manifest_yet_is_told_what_it_is(
    content: bytes, words: str, step: str, answer: Answer, tmp_path: Path
) -> None:
    (tmp_path / "m.yaml").write_bytes(content)
    told = answer("run m.yaml")
    assert words in told
    assert step in told


def test_a_number_with_a_zero_before_it_is_written_once(answer: Answer) -> None:
    assert "the number 007 would mean 7: write 7\n" in answer(f"run {JOB} --rangeBytes 007")


PATTERNS = {
    "'{a,b}.jsonl'": "{a,b} is not a pattern here",
    "a.jsonl,b.jsonl": "a comma does not separate paths here",
    "'$HOME/x'": "the variable after $ was not expanded",
    "'a.jsonl b.jsonl'": "a space is part of a name here, and does not separate paths",
    "'c{1..3}.jsonl'": "{1..3} is not a pattern here",
    "\"'data'\"": "the quotes are part of the name",
    "'C:\\data\\a.jsonl'": "tokjob reads a backslash as part of a name",
    "C:/data": "in WSL: /mnt/c/",
    "'data/?.jsonl'": "the only patterns are * and **",
    "-": "standard input is not a source\n  next: write it to a file first",
    "'gs{a,b}'": "{a,b} is not a pattern",
}


@pytest.mark.parametrize(("typed", "words"), PATTERNS.items(), ids=PATTERNS)
def test_a_pattern_without_files_is_told_what_is_wrong_with_it(typed: str, words: str, answer: Answer) -> None:
    told = answer(f"run --source {typed} --tokenizer bytes --output out")
    assert "matches no file: " in told
    assert words in told


def test_a_variable_in_a_manifest_is_no_matter_of_quotes(answer: Answer, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(MANIFEST.replace("[data]", "[$HOME/x]"))
    assert "next: write the whole path (a manifest has no variables); on the command line" in answer("run job.yaml")


def test_a_blank_in_the_name_of_a_folder_is_no_list_of_paths(answer: Answer) -> None:
    told = answer("run --source 'My Data/a.jsonl' --tokenizer bytes --output out")
    assert "matches no file\n" in told


@pytest.mark.parametrize("place", ["pipe", "/dev/stdin", "/dev/fd/0"])
def test_a_pipe_as_source_is_to_be_written_to_a_file(place: str, answer: Answer, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    told = answer(f"run --source {place} --tokenizer bytes --output out")
    assert "is a pipe, or standard input; expected a file that can be read again" in told
    assert "next: write its text to a file first (... > text.jsonl), and name that file" in told


@pytest.mark.parametrize("flag", ["--output", "--source"])
def test_a_name_that_is_not_utf8_is_shown_by_its_bytes(flag: str, answer: Answer) -> None:
    others = {"--source": "data", "--output": "out"} | {flag: os.fsdecode(b"caf\xe9")}
    told = answer(f"run --tokenizer bytes {' '.join(f'{name} {value}' for name, value in others.items())}")
    assert r"found b'caf\xe9', which is not UTF-8; write a name in UTF-8 (a file or folder: rename it with mv)" in told


def test_a_place_that_is_no_dataset_is_told_which_one_may_be_meant(
    answer: Answer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(f"run {JOB}", 0)
    for inside in ("out/train/train_000000.npy", "out/train"):
        assert f"next: give the folder of the dataset: {tmp_path}/out\n" in answer(f"verify {inside}")
    for command in ("verify", "show", "clean"):
        assert f"{tmp_path}/outt does not exist; did you mean {tmp_path}/out?" in answer(f"{command} outt")
    assert main(["status", "outt"]) == 0
    assert f"Empty      {tmp_path}/outt\n           {tmp_path}/outt does not exist; did you" in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["--output", "--source"])
def test_the_folder_of_a_user_that_does_not_exist_is_not_made(flag: str, answer: Answer, tmp_path: Path) -> None:
    others = {"--source": "data", "--output": "out"} | {flag: "~nouser-here/x"}
    typed = " ".join(f"{name} {value}" for name, value in others.items())
    told = answer(f"run {typed} --tokenizer bytes")
    assert "SpecInvalid: ~nouser-here/x: there is no user 'nouser-here'" in told
    assert "write ./~nouser-here/x" in told
    assert not (tmp_path / "~nouser-here").exists()


def test_a_file_whose_name_begins_with_a_tilde_is_read(answer: Answer, tmp_path: Path) -> None:
    (tmp_path / "~a.jsonl").write_text('{"text": "words"}\n')
    answer("run --source '~a.jsonl' --tokenizer bytes --output out", 0)


def test_files_that_came_or_went_are_named_in_a_conflict(answer: Answer, tmp_path: Path) -> None:
    answer(f"run {JOB}", 0)
    (tmp_path / "data" / "b.jsonl").write_text('{"text": "words"}\n')
    told = answer(f"run {JOB} --rerunToken again", 3)
    assert f"the source has 2 files, it had 1; new: {tmp_path}/data/b.jsonl" in told
    assert "next: write to another output.uri; or put the source files back; or" in told
    (tmp_path / "data" / "a.jsonl").rename(tmp_path / "data" / "c.jsonl")
    told = answer(f"run {JOB} --rerunToken again", 3)
    assert f"new: {tmp_path}/data/b.jsonl and 1 more; gone: {tmp_path}/data/a.jsonl" in told


def test_the_limit_of_file_size_is_named(answer: Answer, tmp_path: Path) -> None:
    command = f"ulimit -f 1; exec {shlex.quote(str(TOKJOB))} run {JOB}"
    (tmp_path / "data" / "a.jsonl").write_text('{"text": "words"}\n' * 1_000)
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert "FileSizeLimit: cannot " in done.stderr
    assert "this process may write files of 1,024 bytes at most (ulimit -f)" in done.stderr
    assert "next: raise the limit (ulimit -f unlimited" in done.stderr


def test_a_status_that_a_cluster_wrote_is_ignored(answer: Answer, tmp_path: Path) -> None:
    """As `kubectl get tkj first -o yaml` prints a job."""
    status = "status: {phase: Running, observedGeneration: 3, run: {number: 1, runKey: abc}, fieldOfANewerOne: 1}\n"
    of_cluster = "{name: first, namespace: corpora, uid: 0a-1b, resourceVersion: '12', generation: 3}"
    (tmp_path / "job.yaml").write_text(MANIFEST.replace("{name: first}", of_cluster) + status)
    answer("validate job.yaml", 0)
    answer("run job.yaml", 0)


def test_one_is_not_said_as_many() -> None:
    assert describe_file(SourceFile("a", 1, "v")) == "1 byte, v"
    assert describe_file(SourceFile("a", 2, "v")) == "2 bytes, v"
