"""Sources on a command line: a glob that the shell has expanded, beside a manifest or without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.corpus import zstd
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.cli.main import main
from tokenization_worker.cli.manifest import JobParser, job_from_arguments

MANIFEST = """\
apiVersion: tokenization.dev/v1alpha1
kind: TokenizationJob
metadata: {name: x}
spec:
  source: {uris: [from-the-manifest]}
  tokenizer: {name: bytes}
  output: {uri: out}
"""
ENDS = ["--tokenizer", "bytes", "--output", "out"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
        (tmp_path / name).write_text('{"text": "x"}\n')
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl.zst").write_bytes(zstd.compress(b'{"text": "x"}\n'))
    (tmp_path / "job.yaml").write_text(MANIFEST)
    (tmp_path / "job").write_text(MANIFEST)
    return tmp_path


def parse(*arguments: str) -> TokenizationJob:
    return job_from_arguments(JobParser("tokjob run", "").parse_args(list(arguments)))


@pytest.mark.parametrize(
    ("arguments", "uris"),
    [
        pytest.param(["--source", "a.jsonl", "b.jsonl", *ENDS], ["a.jsonl", "b.jsonl"], id="expanded"),
        pytest.param([*ENDS, "--source", "a.jsonl", "b.jsonl"], ["a.jsonl", "b.jsonl"], id="at the end"),
        pytest.param(
            ["--source", "a.jsonl.zst", "b.jsonl.zst", *ENDS], ["a.jsonl.zst", "b.jsonl.zst"], id="compressed"
        ),
        pytest.param(
            ["--source", "a.jsonl", "b.jsonl", "--source", "c.jsonl", *ENDS],
            ["a.jsonl", "b.jsonl", "c.jsonl"],
            id="twice",
        ),
        pytest.param(["--source=a.jsonl", "--source=b.jsonl", *ENDS], ["a.jsonl", "b.jsonl"], id="with ="),
        pytest.param(["job.yaml", "--source", "a.jsonl", "b.jsonl"], ["a.jsonl", "b.jsonl"], id="manifest before"),
        pytest.param(["--source", "a.jsonl", "b.jsonl", "job.yaml"], ["a.jsonl", "b.jsonl"], id="manifest after"),
        pytest.param(["--source", "a.jsonl", "job.yaml"], ["a.jsonl"], id="one source, manifest after"),
        pytest.param(["--source", "a.jsonl", "job"], ["a.jsonl"], id="manifest without a suffix"),
        pytest.param(["--source", "*.jsonl", "--engine", "auto", "job.yaml"], ["*.jsonl"], id="a flag between"),
        pytest.param(["--source", "a.jsonl", "--output", "else", "job.yaml"], ["a.jsonl"], id="manifest at the end"),
        pytest.param(["--source", "gs://b/x", "gs://b/y", *ENDS], ["gs://b/x", "gs://b/y"], id="URIs"),
        pytest.param(["--source", "job.yaml", *ENDS], ["job.yaml"], id="a source of that name"),
    ],
)
def test_all_files_after_source_are_sources_and_a_manifest_is_one(
    arguments: list[str], uris: list[str], folder: Path
) -> None:
    parser = JobParser("tokjob run", "")
    parser.add_argument("--engine")
    job = job_from_arguments(parser.parse_args(arguments))
    assert job.spec.source.uris == uris
    assert (job.metadata.name == "x") == any(word in ("job", "job.yaml") for word in arguments[:1] + arguments[2:])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(
            ["--source", "a.jsonl", "job.yaml", "job2.yaml"], ["job.yaml", "job2.yaml", "quote"], id="manifests"
        ),
        pytest.param(["job.yaml", "--source", "a.jsonl", "job2.yaml"], ["job.yaml", "job2.yaml", "quote"], id="two"),
        pytest.param(["a.jsonl", "b.jsonl", *ENDS], ["b.jsonl", "--source"], id="sources without the flag"),
    ],
)
def test_what_is_not_clear_is_refused(
    arguments: list[str], words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "job2.yaml").write_text(MANIFEST)
    with pytest.raises(SystemExit) as left:
        main(["run", *arguments])
    assert left.value.code == 2
    told = capsys.readouterr().err
    assert all(word in told for word in words), told


@pytest.mark.parametrize("flags", [[], ["--output", "else"]], ids=["alone", "with flags"])
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("data.jsonl.zst", zstd.compress(b'{"text": "x"}\n'), "zstd"),
        ("data", zstd.compress(b'{"text": "x"}\n'), "zstd"),
        ("data.jsonl.gz", b"\x1f\x8b\x08" + bytes(30), "gzip"),
        ("data.parquet", b"PAR1" + bytes(30), "Parquet"),
        ("data.npy", b"\x93NUMPY\x01\x00v\x00", "binary"),
        ("data.jsonl", b'{"text": "x"}\n{"text": "y"}\n', "JSON"),
        ("data.json", b'{"text": "x"}', "apiVersion"),
        ("data.txt", b"Just a text: with a colon.\nAnd more: of it.\n", "apiVersion"),
        ("latin.txt", "Straße\n".encode("latin-1"), "not UTF-8"),
    ],
)
def test_data_in_place_of_a_manifest_is_named(
    name: str, content: bytes, words: str, flags: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).write_bytes(content)
    assert main(["run", name, *flags]) == 2
    told = capsys.readouterr().err
    assert told.startswith("tokjob: SpecInvalid: ")
    assert name in told
    assert words in told
    assert f"tokjob run --source {name}" in told


def test_a_folder_in_place_of_a_manifest_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "corpus").mkdir()
    for flags in ([], ["--output", "else"]):
        assert main(["run", "corpus", *flags]) == 2
        told = capsys.readouterr().err
        assert "corpus" in told and "--source corpus" in told


def test_a_file_that_is_too_large_for_a_manifest_is_not_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (folder / "huge.yaml").open("wb") as file:
        file.write(b"text: x\n")
        file.truncate(1 << 33)  # sparse
    assert main(["run", "huge.yaml"]) == 2
    assert "8.6 GB" in capsys.readouterr().err
