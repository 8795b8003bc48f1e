"""The package as a program uses it: its names, a job without a manifest, and what a plan expects."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenization_worker
from support.corpus import CorpusWriter, take_documents
from support.runs import make_job
from tokenization_worker import TokenizationJob, make_plan
from tokenization_worker.cli.manifest import JobParser, job_from_arguments
from tokenization_worker.errors import SpecError, TokenizationError
from tokenization_worker.events import Event, Warned
from tokenization_worker.inspect import preview
from tokenization_worker.inspect.preview import preview_run
from tokenization_worker.output.plan_file import Plan


@pytest.fixture
def source(tmp_path: Path) -> Path:
    corpus = CorpusWriter(tmp_path / "source")
    corpus.jsonl(take_documents(30_000))
    return corpus.finish().folder


def test_the_package_lists_its_public_names_before_they_are_used() -> None:
    program = "import tokenization_worker as package; print(*(n for n in dir(package) if not n.startswith('_')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(tokenization_worker.__all__) <= set(done.stdout.split())
    assert set(dir(tokenization_worker)) >= {"__doc__", "__name__", *tokenization_worker.__all__}


def test_a_plan_tells_tokens_and_time(source: Path, tmp_path: Path) -> None:
    job = make_job(source, tmp_path / "out")
    plan, expected = make_plan(job, processes=2), preview_run(job, processes=2)
    assert isinstance(plan, Plan)
    assert plan.tokens == expected.tokens
    assert plan.tokens is not None
    assert plan.tokens > 5_000
    assert (plan.shards, plan.shard_bytes) == (expected.shards, expected.shard_bytes)
    assert (plan.engine, plan.tokenizer, plan.processes) == (expected.engine, "gpt2", 2)
    assert plan.seconds is not None
    assert plan.seconds > preview.START_SECONDS
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("README.md", b"# A dataset", "SourceInvalid: .*README.md"),
        ("b.jsonl", b'{"text": "x"}\nno JSON\n' * 5, "QuarantineExceeded: 5 of "),
        ("b.jsonl.gz", gzip.compress(b'{"text": "x"}\n' * 99)[:-9], "CorruptFile: .*b.jsonl.gz"),
    ],
    ids=["strange", "unusable", "damaged"],
)
def test_a_plan_refuses_what_a_run_refuses(name: str, content: bytes, told: str, source: Path, tmp_path: Path) -> None:
    (source / name).write_bytes(content)
    with pytest.raises(TokenizationError, match=told):
        make_plan(make_job(source, tmp_path / "out"))


def test_a_plan_tells_what_is_likely(source: Path, tmp_path: Path) -> None:
    (source / "b.jsonl").write_bytes(b"")
    told: list[Event] = []
    make_plan(make_job(source, tmp_path / "out"), on_progress=told.append)
    assert any(isinstance(event, Warned) and "0 bytes" in event.message for event in told)


def test_a_plan_whose_tokens_cannot_be_estimated_says_so(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source whose sampled heads hold no whole document."""
    prepare = preview.prepare
    unknown: dict[str, Any] = dict.fromkeys(("tokens", "shard_bytes", "reference_seconds"))

    def prepare_without_estimate(*arguments: Any) -> Any:
        prepared = prepare(*arguments)
        return replace(prepared, estimate=replace(prepared.estimate, **unknown))

    monkeypatch.setattr(preview, "prepare", prepare_without_estimate)
    plan = make_plan(make_job(source, tmp_path / "out"))
    assert (plan.tokens, plan.shards, plan.shard_bytes, plan.seconds) == (None, None, None, None)
    assert plan.n_ranges == 1


def test_a_job_from_keywords_is_the_job_of_its_manifest() -> None:
    job = TokenizationJob.of(
        source=["data/*.jsonl", "more"],
        tokenizer="gpt2",
        output=Path("out"),
        name="first",
        maxQuarantined="1%",
        **{"output.shards.tokens": 1_000_000, "source.textField": "content"},
    )
    manifest = {
        "apiVersion": "tokenization.dev/v1alpha1",
        "kind": "TokenizationJob",
        "metadata": {"name": "first"},
        "spec": {
            "source": {"uris": ["data/*.jsonl", "more"], "textField": "content"},
            "tokenizer": {"name": "gpt2"},
            "output": {"uri": "out", "shards": {"tokens": 1_000_000}},
            "maxQuarantined": "1%",
        },
    }
    assert job == TokenizationJob.from_object(manifest)
    assert TokenizationJob.from_yaml(job.to_yaml()) == job


def test_blocks_may_be_given_whole_and_dotted_fields_go_into_them() -> None:
    blocks: dict[str, Any] = {"source": {"uris": ["a"]}, "tokenizer": {"name": "gpt2"}, "output": {"uri": "out"}}
    job = TokenizationJob.of(**blocks, **{"output.path": "{split}/{index:04d}"})
    assert (job.spec.output.path, job.metadata.name) == ("{split}/{index:04d}", "laptop")
    assert blocks["output"] == {"uri": "out"}, "what was given is not changed"


@pytest.mark.parametrize("tokenizer", ["gpt2", "models/tokenizer.json", "here.model"])
def test_keywords_mean_what_the_flags_mean(tokenizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here.model").touch()
    flags = ["--source", "data", "--tokenizer", tokenizer, "--output", "out", "--set", "output.shards.tokens=100000"]
    typed = job_from_arguments(JobParser("tokjob run", "").parse_args(flags))
    fields = {"output.shards.tokens": 100_000}
    assert TokenizationJob.of(source="data", tokenizer=tokenizer, output="out", **fields) == typed


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "field unknown": ({"source.textFild": "x"}, r'spec.source.textFild: unknown field; .*did you mean "textField"'),
    "python's spelling": ({"max_quarantined": 1}, r'spec.max_quarantined: unknown field; .*"maxQuarantined"'),
    "value": ({"output.shards.tokens": "many"}, r"spec.output.shards.tokens: found \"many\""),
    "below a value": (
        {"source.textField.x": 1, "source.textField": "a"},
        r"spec.source.textField.x: textField is not a block",
    ),
    "kind of value": ({"source": 7}, r"spec.source: found 7"),
    "one place twice": ({"output.uri": "elsewhere"}, "output and output.uri are given, expected one of them"),
    "one place twice, by a block": ({"output": {"uri": "o"}, "output.uri": "p"}, "output and output.uri are given"),
    "a source twice": ({"source": {"uris": ["a"]}, "source.uris": ["b"]}, "source and source.uris are given"),
    "a name and a file in a block": (
        {"tokenizer": {"name": "gpt2"}, "tokenizer.uri": "a.json"},
        "tokenizer and tokenizer.uri are given",
    ),
    "a block within a block twice": (
        {"output": {"uri": "o", "shards": {"tokens": 5}}, "output.shards": {"tokens": 6}},
        "output and output.shards are given",
    ),
    "a map twice": (
        {"tokenizer": {"uri": "a", "specialTokens": {"a": 1}}, "tokenizer.specialTokens": {"b": 2}},
        "tokenizer and tokenizer.specialTokens are given",
    ),
    "python's spelling of a field in a block": (
        {"text_field": "content"},
        "spec.text_field: unknown field here; did you mean spec.source.textField",
    ),
    "a file and a name": ({"tokenizer.uri": "a.json"}, "tokenizer and tokenizer.uri are given, expected one of them"),
    "a generator": (
        {"source": (name for name in "ab")},
        "source: found a value of type generator\n  next: give source a text or a list",
    ),
    "a set": ({"output.formats": {"Npy"}}, "output.formats: found a value of type set"),
    "name": ({"name": "First Job"}, r"metadata.name: found \"First Job\""),
}


@pytest.mark.parametrize(("fields", "words"), WRONG.values(), ids=WRONG)
def test_a_mistake_in_keywords_has_the_path_of_its_field(fields: dict[str, Any], words: str) -> None:
    right: dict[str, Any] = {"source": "data", "tokenizer": "gpt2", "output": "out"}
    with pytest.raises(SpecError, match=rf"SpecInvalid: TokenizationJob.of: (?s:.*){words}"):
        TokenizationJob.of(**{**right, **fields})


def test_a_mistake_in_keywords_is_corrected_there() -> None:
    with pytest.raises(SpecError) as caught:
        TokenizationJob.of(source="data", tokenizer="gpt2", output="out", textField="x")
    assert caught.value.next_step.startswith("correct the arguments of TokenizationJob.of")


def test_whole_numbers_of_numpy_are_numbers() -> None:
    numbers: dict[str, Any] = {"output.shards.tokens": np.int64(5000), "source": {"uris": ["a"]}}
    job = TokenizationJob.of(tokenizer="gpt2", output={"uri": "out", "dtype": "UInt32"}, **numbers)
    assert job.spec.output.shards.tokens == 5000
    assert type(job.spec.output.shards.tokens) is int


@pytest.mark.parametrize("value", [None, {"kind": "TokenizationJob"}], ids=["None", "dict"])
def test_what_is_no_manifest_is_refused(value: Any) -> None:
    words = f"from_yaml takes the path of a manifest or its text, found {type(value).__name__}\n.*from_object"
    with pytest.raises(SpecError, match=words):
        TokenizationJob.from_yaml(value)


def test_a_job_from_keywords_without_its_fields_names_them() -> None:
    with pytest.raises(SpecError, match=r"(?s)spec.tokenizer: missing.*spec.output: missing"):
        TokenizationJob.of(source="data")


def test_paths_may_be_path_objects(tmp_path: Path) -> None:
    job = TokenizationJob.of(source=tmp_path / "a", tokenizer=tmp_path / "tokenizer.json", output=tmp_path / "out")
    assert job.spec.source.uris == [os.fspath(tmp_path / "a")]
    assert (job.spec.tokenizer.uri, job.spec.tokenizer.name) == (os.fspath(tmp_path / "tokenizer.json"), None)
