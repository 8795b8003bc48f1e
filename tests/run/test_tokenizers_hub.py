"""A tokenizer by a model's name on the Hugging Face Hub: read at one commit, and never another one in a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.corpus import json_lines, take_documents
from support.engine.inline import inline
from support.runs import command, difference, make_job, read_index, run_command
from support.stores.hub_fake import FakeHub, hub
from support.tokenizer_models import train_byte_level
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.dataset.dataset import open_dataset
from tokenization_worker.engine.task import Task
from tokenization_worker.errors import SpecError
from tokenization_worker.inspect.preview import preview_run
from tokenization_worker.run.run import run_job
from tokenization_worker.tokenizers.load import load_tokenizer

__all__ = ["hub"]

MODEL = "models/org/model"


def tokenizer_json(**changes: Any) -> bytes:
    return json.dumps(train_byte_level([{"content": "<|endoftext|>"}], **changes)).encode()


@pytest.fixture(scope="module")
def first() -> bytes:
    return tokenizer_json()


@pytest.fixture(scope="module")
def second() -> bytes:
    return tokenizer_json(normalizer={"type": "Lowercase"})


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tokenization_worker.tokenizers.checks.behaviour._code_point_chapters", lambda: iter(()))
    load_tokenizer.cache_clear()


def job_with(tmp_path: Path, tokenizer: dict[str, Any], output: str = "out") -> TokenizationJob:
    source = tmp_path / "source"
    if not source.exists():
        source.mkdir()
        (source / "a.jsonl").write_bytes(json_lines(take_documents(40_000, odd=False)))
    return make_job(
        source, tmp_path / output, rangeBytes="16Ki", tokenizer=tokenizer, output={"shards": {"tokens": 9000}}
    )


def test_a_models_name_stands_for_its_tokenizer_json(hub: FakeHub, first: bytes, tmp_path: Path) -> None:
    commit = hub.put(MODEL, "tokenizer.json", first)
    job = job_with(tmp_path, {"name": "hf:org/model"})
    run_job(job, executor=inline())
    index = read_index(tmp_path / "out")
    assert index["tokenizer"]["name"] == "hf:org/model"
    assert index["run"]["tokenizer"] | {"name": "hf:org/model", "revision": commit} == index["run"]["tokenizer"]

    file = tmp_path / "tokenizer.json"
    file.write_bytes(first)
    run_job(job_with(tmp_path, {"name": None, "uri": str(file)}, "from-file"), executor=inline())
    from_file = read_index(tmp_path / "from-file")
    assert (from_file["dataKey"], from_file["digest"]) == (index["dataKey"], index["digest"])
    assert "revision" not in from_file["run"]["tokenizer"]
    assert difference(tmp_path / "out", tmp_path / "from-file") is None


def test_a_branch_that_moves_during_a_run_changes_nothing(
    hub: FakeHub, first: bytes, second: bytes, tmp_path: Path
) -> None:
    commit = hub.put(MODEL, "tokenizer.json", first)
    job = job_with(tmp_path, {"name": "hf:org/model"})

    def move_and_stop(task: Task) -> None:
        hub.put(MODEL, "tokenizer.json", second)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(job, executor=inline(move_and_stop))
    load_tokenizer.cache_clear()
    run_job(job, executor=inline(lambda task: load_tokenizer.cache_clear()))  # each task as in a process of its own
    assert read_index(tmp_path / "out")["run"]["tokenizer"]["revision"] == commit
    assert preview_run(job_with(tmp_path, {"name": "hf:org/model"}, "new")).tokenizer == "hf:org/model"
    assert hub.paths("GET", f"resolve/{commit}/tokenizer.json")


def test_a_revision_is_taken(hub: FakeHub, first: bytes, second: bytes, tmp_path: Path) -> None:
    hub.put(MODEL, "tokenizer.json", second)
    commit = hub.put(MODEL, "tokenizer.json", first, revision="v1")
    run_job(job_with(tmp_path, {"name": "hf:org/model@v1"}), executor=inline())
    assert read_index(tmp_path / "out")["run"]["tokenizer"]["revision"] == commit


def test_verify_reads_the_tokenizer_at_its_commit(hub: FakeHub, first: bytes, second: bytes, tmp_path: Path) -> None:
    hub.put(MODEL, "tokenizer.json", first)
    job = job_with(tmp_path, {"name": "hf:org/model"})
    ran = run_command([*command(job, tmp_path), "--executor", "local"])
    assert ran.returncode == 0, ran.stderr
    hub.put(MODEL, "tokenizer.json", second)
    tokjob = command(job, tmp_path)[0]
    verified = run_command([tokjob, "verify", str(tmp_path / "out"), "--mode", "full"])
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_tokens_are_decoded_at_the_commit_of_their_tokenizer(
    hub: FakeHub, first: bytes, second: bytes, tmp_path: Path
) -> None:
    hub.put(MODEL, "tokenizer.json", first)
    run_job(job_with(tmp_path, {"name": "hf:org/model"}), executor=inline())
    dataset = open_dataset(tmp_path / "out")
    tokens = dataset["train"].tokens(0, 50)
    text = dataset.decode(tokens)
    hub.put(MODEL, "tokenizer.json", second)
    load_tokenizer.cache_clear()
    assert dataset.decode(tokens) == text


def test_the_short_flag_takes_a_models_name(hub: FakeHub, first: bytes, tmp_path: Path) -> None:
    tokjob = command(job_with(tmp_path, {"name": "gpt2"}), tmp_path)[0]
    arguments = ["--source", "data", "--tokenizer", "hf:org/model", "--output", "out", "--print-manifest"]
    printed = run_command([tokjob, "run", *arguments])
    assert "name: hf:org/model" in printed.stdout, printed.stderr


def refusal(job: TokenizationJob) -> SpecError:
    with pytest.raises(SpecError) as caught:
        run_job(job, executor=inline())
    return caught.value


def test_a_model_without_the_file_is_refused_with_the_command(hub: FakeHub, tmp_path: Path) -> None:
    hub.put(MODEL, "tokenizer.model", b"x")
    error = refusal(job_with(tmp_path, {"name": "hf:org/model"}))
    assert error.reason == "TokenizerUnavailable"
    assert "hf:org/model: the model's repository has no tokenizer.json" in error.message
    assert "hf download org/model tokenizer.model --local-dir org--model" in error.next_step


def test_a_gated_model_is_refused_with_its_page(hub: FakeHub, first: bytes, tmp_path: Path) -> None:
    hub.put(MODEL, "tokenizer.json", first)
    hub.gated.add(MODEL)
    error = refusal(job_with(tmp_path, {"name": "hf:org/model"}))
    assert "model org/model is gated" in error.message
    assert f"ask for access at {hub.url}/org/model " in error.next_step


def test_a_model_or_revision_that_is_not_there_is_named(hub: FakeHub, first: bytes, tmp_path: Path) -> None:
    hub.put(MODEL, "tokenizer.json", first)
    assert "there is no model org/other" in refusal(job_with(tmp_path, {"name": "hf:org/other"})).message
    assert "model org/model has no revision 'v9'" in refusal(job_with(tmp_path, {"name": "hf:org/model@v9"})).message


@pytest.mark.parametrize("name", ["hf:", "hf:a/b/c", "hf:org/na me", "hf:org/model@", "hf:org/mod*"])
def test_a_name_that_is_no_models_is_refused(name: str, tmp_path: Path) -> None:
    error = refusal(job_with(tmp_path, {"name": name}))
    assert error.message == f"tokenizer.name: {name!r} is not a model on the Hub"
    assert "hf:org/name" in error.next_step


DOWNLOAD = (
    "hf download org/model tokenizer.json --local-dir org--model, and then tokenizer.uri: org--model/tokenizer.json"
)


def test_a_path_that_may_be_a_models_name_says_how_to_get_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = refusal(job_with(tmp_path, {"name": None, "uri": "org/model"}))
    assert "there is no such file" in error.message
    assert "tokenizer.name: hf:org/model" in error.next_step
    assert DOWNLOAD in error.next_step


def test_a_name_that_may_be_a_models_says_how_to_get_the_file(tmp_path: Path) -> None:
    assert "hf:org/model" in refusal(job_with(tmp_path, {"name": "org/model"})).next_step
