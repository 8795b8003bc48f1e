"""The mistakes of a first day: each is answered in full, with what to type instead, and nothing is written.

A message says what is wrong, where, what was expected and found, and what to do next.
"""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tokenization_worker.cli.main import main

TEXT = "some words of a document. "
MANIFEST = """\
apiVersion: tokenization.dev/v1alpha1
kind: TokenizationJob
metadata: {name: first}
spec:
  source: {uris: [data]}
  tokenizer: {name: bytes}
  output: {uri: out}
"""
JOB = "--source data --tokenizer bytes --output out"
INTO = "--tokenizer bytes --output out"


@dataclass(frozen=True)
class Slip:
    """What is typed after `tokjob`, and the reason, the exit code and the words of the answer."""

    typed: str
    reason: str
    code: int
    words: tuple[str, ...]


def spec(typed: str, *words: str) -> Slip:
    return Slip(typed, "SpecInvalid", 2, words)


def usage(typed: str, *words: str) -> Slip:
    return Slip(typed, "error:", 2, words)


def source(typed: str, *words: str) -> Slip:
    return Slip(typed, "SourceInvalid", 2, words)


SLIPS: dict[str, Slip] = {
    # --- the command
    "a word of another tool": usage("tokenize", "unknown command 'tokenize'", "did you mean 'run'?"),
    "no job": spec("run", "no job given", "--source, --tokenizer and --output"),
    "no output": spec(
        "run --source data --tokenizer bytes", "--output missing", "found source, tokenizer", "add --output"
    ),
    "a manifest that is not there": Slip(
        "run jobs.yaml", "SpecNotFound", 2, ("jobs.yaml: No such file", "did you mean job.yaml?", "path of a manifest")
    ),
    "data in place of a manifest": spec(
        "run data/a.jsonl",
        "data/a.jsonl: expected a manifest",
        "found JSON records",
        "tokjob run --source data/a.jsonl",
    ),
    "compressed data in place of a manifest": spec(
        "run data.jsonl.gz", "data.jsonl.gz: expected a manifest", "found gzip data", "put a glob in quotes"
    ),
    "two manifests": usage(
        f"run --source data/a.jsonl job.yaml other.yaml {INTO}", "job.yaml and other.yaml", "in quotes"
    ),
    "a typo in a flag": usage(
        f"run {JOB} --outptu.path x", "unknown flag --outptu.path", "did you mean --output.path?"
    ),
    "--resume": usage("run job.yaml --resume", "there is no --resume", "leave it out"),
    "--workers": usage(f"run {JOB} --workers 4", "there is no --workers: --processes N says how many processes"),
    "--force": usage(f"run {JOB} --force", "there is no --force: write to another --output", "tokjob clean"),
    "--overwrite": usage(f"run {JOB} --overwrite", "there is no --overwrite: write to another --output"),
    "--seed": usage(f"run {JOB} --seed 3", "there is no --seed: --output.shuffle.seed chooses the order"),
    "--input": usage(f"run {JOB} --input x", "there is no --input: --source takes the files, folders and globs"),
    "--model": usage(f"run {JOB} --model gpt2", "there is no --model: --tokenizer takes a name"),
    "--shard-size": usage(f"run {JOB} --shard-size 1M", "there is no --shard-size: --output.shards.tokens N"),
    "--append-eos": usage(f"run {JOB} --append-eos", "there is no --append-eos: --tokenizer.delimiter.position After"),
    "--dry-run": usage("run job.yaml --dry-run", "there is no --dry-run: tokjob plan shows what a run would do"),
    "a flag before the command": usage(
        "--processes 2 run job.yaml", "flags stand after the command: tokjob run --processes"
    ),
    "no processes": usage(f"run {JOB} --processes 0", "--processes: found '0'", "a whole number, at least 1"),
    "another executor": usage(f"run {JOB} --executor spark", "--executor: invalid choice: 'spark'", "'local', 'ray'"),
    "a Ray address without a port": spec(
        f"run {JOB} --ray-address localhost", "'localhost' is not HOST:PORT", "such as 10.0.0.5:6379"
    ),
    "--set without =": spec(f"run {JOB} --set rangeBytes 64Mi", "--set rangeBytes: expected FIELD=VALUE", "write ="),
    "a flag twice": usage("run --source data --tokenizer bytes --output a --output b", "--output: given twice"),
    "a field by two flags": spec(
        f"run {JOB} --output.uri b",
        "--output and --output.uri are given, expected one of them",
        "leave one of them out",
    ),
    "a field by a flag and --set": spec(
        f"run {JOB} --rangeBytes 1M --set rangeBytes=2M",
        "--rangeBytes and --set rangeBytes are given, expected one of them",
    ),
    "a tab in a manifest": spec(
        "run tab.yaml", "tab.yaml: line 5, column 1: not YAML", "indent with spaces, not with a tab"
    ),
    "a colon in a text": spec(
        "run colon.yaml", "colon.yaml: line 6, column 18: not YAML", "a colon and a space in quotes"
    ),
    "a tag of Python": spec("run python.yaml", "python.yaml: line 6, column 14: not YAML", "leave the tag (!...) out"),
    "a manifest in UTF-16": spec(
        "run utf16.yaml", "utf16.yaml: the manifest is UTF-16, expected UTF-8", "save it as UTF-8", "iconv"
    ),
    "a status that no operator wrote": spec(
        "run status.yaml", "status.phase: not as the operator writes it: remove status"
    ),
    "machines in the wrong block": spec(
        f"run {JOB} --set replicas=4", "spec.replicas: unknown field here; did you mean spec.workers.replicas?"
    ),
    # --- fields
    "a typo in a field": spec("run typo.yaml", "spec.sources: unknown field", 'did you mean "source"?'),
    "a field in the wrong block": spec(
        f"run {JOB} --set textField=body", "spec.textField: unknown field here", "did you mean spec.source.textField?"
    ),
    "a choice in small letters": spec(
        f"run {JOB} --source.format jsonl",
        'spec.source.format: found "jsonl"',
        "expected one of",
        'did you mean "Jsonl"?',
    ),
    "a number with an exponent": spec(
        f"run {JOB} --output.shards.tokens 1e6", 'spec.output.shards.tokens: found "1e6"', "write 1000000"
    ),
    "a unit that is none": spec(f"run {JOB} --rangeBytes 64MB", 'spec.rangeBytes: found "64MB"', "write 64000000"),
    "a number that begins with 0": spec(
        f"run {JOB} --output.shards.tokens 010",
        "--output.shards.tokens 010: line 1, column 1: the number 010 would mean 8: write 10, or 8",
    ),
    "a share without %": spec(
        f"run {JOB} --output.splits '[{{name: val, share: 0.01}}, {{name: train}}]'",
        "spec.output.splits[0].share: found 0.01",
        "a share is a percentage: write 1%",
    ),
    "a limit without %": spec(f"run {JOB} --maxQuarantined 0.01", "spec.maxQuarantined: found 0.01", "write 1%"),
    "a last split with a share": spec(
        f"run {JOB} --output.splits '[{{name: train, share: 90%}}, {{name: val, share: 10%}}]'",
        "spec.output.splits: found",
        "the last has neither: it takes the rest",
    ),
    "a path with .npy": spec(
        f"run {JOB} --output.path '{{split}}_{{index:04d}}.npy'", "spec.output.path: found", "leave .npy out"
    ),
    "a path without a number": spec(f"run {JOB} --output.path '{{split}}'", "a shard needs its number", "{index:06d}"),
    "a dtype that is too small": spec(
        "run --source data --tokenizer cl100k_base --output out --output.dtype UInt16",
        "output.dtype: UInt16 holds ids up to 65,535",
        "this vocabulary has 100,277",
        "write UInt32, or Auto",
    ),
    "an escape in single quotes": spec(
        f"run --source a.txt --source.format Text {INTO} --source.documentSeparator '\\n'",
        "--source.documentSeparator \\n: could mean the escape",
        "or the 2 characters as they were typed",
        "for the escape: --source.documentSeparator '\"\\n\"'",
    ),
    "a separator without Text": spec(
        f"run {JOB} --source.documentSeparator '#'", "spec.source.documentSeparator: found", "write format: Text"
    ),
    "a value that begins with -": usage(
        f"run {JOB} --source.documentSeparator ---",
        "--source.documentSeparator: expected one argument",
        "--source.documentSeparator=---",
    ),
    # --- the tokenizer
    "an encoding by half its name": Slip(
        "run --source data --tokenizer cl100k --output out",
        "TokenizerUnavailable",
        2,
        ("tokenizer.name: 'cl100k'", "did you mean 'cl100k_base'?"),
    ),
    "a tokenizer file that is not there": Slip(
        "run --source data --tokenizer ./tokenizer.json --output out",
        "TokenizerUnavailable",
        2,
        ("tokenizer.uri:", "tokenizer.json: there is no such file", "check the path"),
    ),
    "a tokenizer file in a folder that is not there": Slip(
        "run --source data --tokenizer models/tokenizer.json --output out",
        "TokenizerUnavailable",
        2,
        ("tokenizer.uri:", "models/tokenizer.json: there is no such file", "next: check the path\n"),
    ),
    "an empty tokenizer file": Slip(
        "run --source data --tokenizer ./empty.jsonl --output out",
        "TokenizerInvalid",
        2,
        ("empty.jsonl: expected a tokenizer.json, tiktoken ranks or a SentencePiece model, found an empty file",),
    ),
    "a file that is no tokenizer": Slip(
        "run --source data --tokenizer ./a.txt --output out",
        "TokenizerInvalid",
        2,
        ("a.txt: expected a tokenizer.json, tiktoken ranks", "found a file that begins with b'one"),
    ),
    "the folder of a tokenizer": Slip(
        "run --source data --tokenizer ./model --output out",
        "TokenizerUnavailable",
        2,
        ("model is a folder", "give the file in it: ", "model/tokenizer.json"),
    ),
    "a token that is not special": Slip(
        f"run {JOB} --tokenizer.delimiter.token '<eos>'",
        "DelimiterUnknown",
        2,
        ("tokenizer.delimiter: '<eos>'", "it has '<|endoftext|>'", "write one of them"),
    ),
    # --- the source
    "a glob that matches nothing": source(
        f"run --source 'dat/*.jsonl' {INTO}", "dat/*.jsonl' matches no file", "check the path"
    ),
    "braces of a shell": source(
        f"run --source 'data/{{a,b}}.jsonl' {INTO}", "matches no file: {a,b} is not a pattern here", "--source"
    ),
    "paths with a comma": source(f"run --source data/a.jsonl,data/b.jsonl {INTO}", "a comma does not separate paths"),
    "an empty folder": source(f"run --source nothing {INTO}", "nothing' matches no file: the folder is empty"),
    "two paths in one pair of quotes": source(
        f"run --source 'data/a.jsonl a.txt' {INTO}", "a space is part of a name here", "its own quotes"
    ),
    "standard input by its name": source(
        f"run --source /dev/stdin {INTO}", "/dev/stdin is a pipe", "write its text to a file first"
    ),
    "standard input": source(f"run --source - {INTO}", "standard input is not a source", "write it to a file first"),
    "JSON lines as Parquet": source(
        f"run --source data/a.jsonl --source.format Parquet {INTO}",
        "a.jsonl begins with '{': it is not Parquet",
        "leave source.format out",
    ),
    "Parquet as text": source(
        f"run --source rows.bin --source.format Text {INTO}", "rows.bin is Parquet, and source.format is Text"
    ),
    "a table as JSON lines": source(
        f"run --source table.csv --source.format Jsonl {INTO}",
        "table.csv is a table (.csv)",
        "convert it: python3 -c",
        "{made}/lines-table.csv.jsonl < {made}/table.csv",
    ),
    "a web address": spec(
        f"run --source https://example.com/a.jsonl {INTO}",
        'spec.source.uris[0]: found "https://example.com/a.jsonl"',
        "gs://",
    ),
    "the text in another field": source(
        f"run --source content.jsonl {INTO}",
        "content.jsonl: none of its first 10 records has a text at 'text'",
        "fields found: 'content', 'url'",
        "did you mean source.textField: content?",
    ),
    "chat messages": source(
        f"run --source chat.jsonl {INTO}",
        "chat.jsonl: none of its first 10 records",
        "messages is a list of chat messages",
        "python3 -c",
        "< {made}/chat.jsonl > {made}/text-chat.jsonl",
    ),
    "a JSON array": source(
        f"run --source array.json {INTO}",
        "array.json: expected one JSON object a line, found a JSON array",
        "jq -c '.[]'",
    ),
    "JSON over several lines": source(
        f"run --source pretty.jsonl {INTO}",
        "pretty.jsonl: expected lines that are JSON objects",
        "jq -c . < {made}/pretty.jsonl",
    ),
    "a JSON array over lines": Slip(
        f"run --source rows.json {INTO}",
        "QuarantineExceeded",
        4,
        ("11 of 12 documents", "begins with '['", "jq -c '.[]' < {made}/rows.json > {made}/lines-rows.json; then give"),
    ),
    "JSON with NaN": source(
        f"run --source nan.jsonl {INTO}",
        "nan.jsonl: expected lines that are JSON objects",
        "a line has NaN or Infinity, which is not strict JSON",
    ),
    "a list in an object": source(
        f"run --source envelope.json {INTO}", "data is a list of all records", "jq -c '.data[]' < {made}/envelope.json"
    ),
    "a few lines in another encoding": Slip(
        f"run --source latin.jsonl {INTO}",
        "QuarantineExceeded",
        4,
        ("1 of 11 non-ASCII lines", "do not convert the whole file", "show --quarantined"),
    ),
    "a file without a known suffix": source(
        f"run --source notes.xyz {INTO}",
        "cannot detect the format of",
        "notes.xyz",
        "begins with",
        "--source.format Text",
    ),
    "a file that is not text": source(f"run --source noise.bin {INTO}", "its content is binary", "leave it out"),
    "UTF-16": Slip(
        f"run --source utf16.jsonl {INTO}",
        "WrongEncoding",
        4,
        ("utf16.jsonl", "is UTF-16", "expected UTF-8", "next: iconv -f UTF-16 -t UTF-8 < {made}/utf16.jsonl"),
    ),
    "a download that broke off": Slip(
        f"run --source cut.jsonl.gz {INTO}",
        "CorruptFile",
        4,
        ("cut.jsonl.gz: gzip", "1 of 1 file corrupt", "replace the file"),
    ),
    "lines that are no JSON": Slip(
        f"run --source mixed.jsonl {INTO}",
        "QuarantineExceeded",
        4,
        (
            "3 of 13 documents",
            "maxQuarantined allows 0",
            "mixed.jsonl record 11",
            "InvalidJson",
            "raise maxQuarantined",
        ),
    ),
    "nothing but empty files": Slip(
        f"run --source empty.jsonl {INTO}", "NoDocuments", 4, ("no document was written: 0 read", "check source.uris")
    ),
    # --- the output
    "an output within the source": spec(
        "run --source data --tokenizer bytes --output data/out",
        "output.uri:",
        "lies in the source",
        "narrow source.uris",
    ),
    "an output at s3://": spec(
        "run --source data --tokenizer bytes --output s3://bucket/out",
        'spec.output.uri: found "s3://bucket/out"',
        "read only",
    ),
    "an output that is a file": Slip(
        "run --source data --tokenizer bytes --output job.yaml",
        "OutputNotWritable",
        2,
        ("job.yaml is a file; the output", "new folder"),
    ),
    "an output that is a device": Slip(
        "run --source data --tokenizer bytes --output /dev/null",
        "OutputNotWritable",
        2,
        ("/dev/null is a pipe, a socket or a device; the output needs a folder", "give --output a new folder"),
    ),
    "an output that is a link that leads back to itself": Slip(
        "run --source data --tokenizer bytes --output circle",
        "OutputNotWritable",
        2,
        ("circle is a link that leads back to itself", "give --output a new folder"),
    ),
    "the index in place of its folder": Slip(
        "verify done/index.json",
        "NotADataset",
        2,
        ("index.json has no index.json; found a file", "give the folder of the dataset: "),
    ),
    "a folder of shards in place of the dataset": Slip(
        "verify done/train",
        "NotADataset",
        2,
        ("train has no index.json; found a part of", "give the folder of the dataset: "),
    ),
    "a typo in a dataset": Slip("verify dome", "NotADataset", 2, ("dome does not exist; did you mean",)),
    "rank files into a file": Slip("fetch-ranks /dev/null", "SpecInvalid", 2, ("/dev/null is not a folder",)),
    "another job at the output": Slip(
        "run --source data --tokenizer gpt2 --output done",
        "OutputConflict",
        3,
        (
            "done holds a complete dataset",
            "tokenizer.name: the job says gpt2, the output has bytes",
            "write to another output.uri",
        ),
    ),
    "a folder that is no dataset": Slip(
        "verify data",
        "NotADataset",
        2,
        ("data has no index.json; found files, but none that tokjob wrote", "check the path"),
    ),
    "a split that is not there": Slip(
        "show done --split valid", "SplitUnknown", 2, ("done has no split 'valid'", "one of: train")
    ),
    "clean of a dataset": Slip(
        "clean done", "DatasetCommitted", 3, ("done holds a complete dataset", "remove it yourself: rm -r")
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files before each mistake."""
    folder = tmp_path_factory.mktemp("first-day")
    (folder / "data").mkdir()
    lines = "".join(json.dumps({"id": str(n), "text": TEXT * 5}) + "\n" for n in range(10))
    (folder / "data" / "a.jsonl").write_text(lines)
    (folder / "data.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (folder / "cut.jsonl.gz").write_bytes(gzip.compress(lines.encode() * 50)[:-40])
    (folder / "job.yaml").write_text(MANIFEST)
    (folder / "other.yaml").write_text(MANIFEST)
    (folder / "typo.yaml").write_text(MANIFEST.replace("source:", "sources:"))
    (folder / "circle").symlink_to("circle")
    (folder / "nothing").mkdir()
    (folder / "rows.bin").write_bytes(b"PAR1\x15\x04" + bytes(40))
    (folder / "table.csv").write_text("text,n\nwords,1\n")
    (folder / "model").mkdir()
    (folder / "model" / "tokenizer.json").write_text("{}")
    (folder / "tab.yaml").write_text(MANIFEST.replace("  source", "	source"))
    (folder / "colon.yaml").write_text(MANIFEST.replace("{name: bytes}", "name: b: c"))
    (folder / "python.yaml").write_text(MANIFEST.replace("{name: bytes}", "!!python/object:os.system {}"))
    (folder / "utf16.yaml").write_bytes(MANIFEST.encode("utf-16"))
    (folder / "status.yaml").write_text(MANIFEST + "status: {phase: Runing, replicas: x}\n")
    (folder / "a.txt").write_text("one\ntwo\n")
    (folder / "content.jsonl").write_text((json.dumps({"content": TEXT, "url": "u"}) + "\n") * 10)
    chat = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
    (folder / "chat.jsonl").write_text((json.dumps(chat) + "\n") * 10)
    (folder / "array.json").write_text(json.dumps([{"text": TEXT}] * 10))
    (folder / "pretty.jsonl").write_text((json.dumps({"text": TEXT}, indent=2) + "\n") * 10)
    (folder / "rows.json").write_text("[\n" + ",\n".join([json.dumps({"text": TEXT})] * 10) + "\n]\n")
    (folder / "nan.jsonl").write_text('{"text": "words", "score": NaN}\n' * 10)
    (folder / "envelope.json").write_text(json.dumps({"data": [{"text": TEXT}] * 10}))
    accents = '{"text": "d\u00e9j\u00e0 vu"}\n'
    (folder / "latin.jsonl").write_bytes(accents.encode() * 10 + accents.encode("latin-1"))
    (folder / "noise.bin").write_bytes(bytes(range(256)) * 8)
    (folder / "notes.xyz").write_text("plain words\n")
    (folder / "utf16.jsonl").write_bytes(lines.encode("utf-16"))
    (folder / "mixed.jsonl").write_text(lines + "not JSON\n" * 3)
    (folder / "empty.jsonl").write_bytes(b"")
    assert (
        main(["run", "--source", str(folder / "data"), "--tokenizer", "bytes", "--output", str(folder / "done")]) == 0
    )
    return folder


@pytest.mark.parametrize("slip", SLIPS.values(), ids=SLIPS.keys())
def test_a_mistake_is_answered_in_full(
    slip: Slip, made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(made)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    try:
        code = main(shlex.split(slip.typed))
    except SystemExit as left:
        code = int(left.code or 0)
    finally:
        shutil.rmtree(made / "out", ignore_errors=True)
    told = capsys.readouterr().err
    assert code == slip.code, told
    assert f"{slip.reason}" in told.partition("next:")[0], told
    assert "  next: " in told or "did you mean" in told, told
    for words in slip.words:
        assert words.replace("{made}", str(made)) in told, told
    assert "Traceback" not in told
    assert not re.search(r"\b(docs|scripts|examples)/", told), "a message names what is only in a checkout"


def test_an_address_of_the_environment_is_named_as_that(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(made)
    monkeypatch.setenv("RAY_ADDRESS", "foo")
    assert main(shlex.split(f"run {JOB} --executor ray")) == 2
    assert "the Ray address 'foo' (from RAY_ADDRESS) is not HOST:PORT" in capsys.readouterr().err
