"""The same job from s3:// and hf://: the bytes of the local files' dataset, proof, and resume while a branch moves."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.corpus import Corpus
from support.engine.inline import inline
from support.runs import TOKJOB, Held, difference, make_job, read_index, run_command
from support.stores.hub_fake import FakeHub, hub
from support.stores.s3_server import put_s3, s3_bucket, s3_host
from tokenization_worker import run_job
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.readers.decompress import zstd

pytestmark = pytest.mark.slow

__all__ = ["hub", "s3_bucket", "s3_host"]

LIMITS = {"maxQuarantined": "100%", "maxCorruptFiles": "100%"}
SHARDS = {"shards": {"tokens": 50_000}}
ROOT = "hf://datasets/org/name"


@pytest.fixture(scope="module")
def expected(mixed: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same job's dataset from local disks."""
    output = tmp_path_factory.mktemp("local") / "out"
    run_job(make_job(mixed.folder, output, LIMITS, output=SHARDS), executor=inline())
    return output


@pytest.fixture(params=["s3", "hf"])
def source(request: pytest.FixtureRequest, mixed: Corpus) -> str:
    """The corpus elsewhere."""
    write: Callable[[str, bytes], object]
    if request.param == "s3":
        bucket = request.getfixturevalue("s3_bucket")
        write = put_s3(request.getfixturevalue("s3_host"), bucket, "corpus/")
        uri = f"s3://{bucket}/corpus"
    else:
        service = request.getfixturevalue("hub")
        uri, write = f"{ROOT}/corpus", lambda name, data: service.put("org/name", f"corpus/{name}", data)
    for path in sorted(mixed.folder.iterdir()):
        write(path.name, path.read_bytes())
    return uri


def arguments(verb: str, source: str, output: Path, *more: str) -> list[str]:
    flags = ["--source", source, "--tokenizer", "gpt2", "--output", str(output), "--rangeBytes", "64Ki"]
    limits = ["--maxQuarantined", "100%", "--maxCorruptFiles", "100%"]
    return [str(TOKJOB), verb, *flags, *limits, "--output.shards.tokens", "50000", *more]


def tokjob(*command: str) -> subprocess.CompletedProcess[str]:
    return run_command(command)


def proven(output: Path) -> None:
    """`verify --full` reads the source again, and finds no fault."""
    verified = tokjob(str(TOKJOB), "verify", str(output), "--full", "--processes", "1")
    assert verified.returncode == 0, verified.stdout + verified.stderr


def files_table(output: Path) -> list[dict[str, Any]]:
    table = output / "_tokenization" / "files.jsonl.zst"
    return [json.loads(line) for line in zstd.decompress(table.read_bytes()).splitlines()]


@pytest.mark.sampled(2)
def test_a_job_from_elsewhere_gives_the_local_bytes(source: str, expected: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    outlook = json.loads(tokjob(*arguments("plan", source, output, "--json")).stdout)
    done = tokjob(*arguments("run", source, output, "--processes", "2"))
    assert done.returncode == 0, done.stderr
    assert difference(output, expected) is None
    assert outlook["files"] == len(files_table(output)) > 10
    mine, theirs = read_index(output), read_index(expected)
    assert mine["conservation"] == theirs["conservation"]
    proven(output)
    shown = tokjob(str(TOKJOB), "show", str(output), "--token", "70000", "--json")
    assert shown.returncode == 0, shown.stderr
    document = json.loads(shown.stdout)
    assert document["place"]["uri"].startswith(source) and document["id"] is not None and not document["note"]


@pytest.mark.exhaustive
def test_a_branch_that_moves_changes_nothing_for_a_run_that_has_a_plan(
    hub: FakeHub, mixed: Corpus, expected: Path, tmp_path: Path
) -> None:
    files = {f"corpus/{path.name}": path.read_bytes() for path in mixed.folder.iterdir()}
    planned = hub.commit("org/name", files)
    output = tmp_path / "out"
    command = arguments("run", f"{ROOT}/corpus", output, "--processes", "2", "--json")
    running = Held(command, tmp_path / "stopped")
    running.wait_for_ranges(1)
    moved = hub.commit("org/name", dict.fromkeys((*files, "corpus/zzz.jsonl"), b'{"text": "another"}\n'))
    assert running.kill() == -9, running.errors
    events = [json.loads(line) for line in tokjob(*command).stdout.splitlines()]
    assert next(event for event in events if event["event"] == "planned")["adopted"]
    assert difference(output, expected) is None
    plan = Plan.from_bytes((output / "_tokenization" / "plan").read_bytes(), "")
    assert {file.pin for file in plan.files} == {row["pin"] for row in files_table(output)} == {planned}
    assert not any(moved in path for path in hub.paths("GET", "/resolve/"))
    proven(output)
    again = tokjob(*arguments("run", f"{ROOT}/corpus", tmp_path / "new", "--processes", "2"))
    assert again.returncode == 0, again.stderr
    assert difference(tmp_path / "new", expected) is not None


def test_a_commit_elsewhere_in_the_repository_is_another_commit_and_the_same_data(hub: FakeHub, tmp_path: Path) -> None:
    keys = []
    for number in range(2):
        hub.put("org/name", "README.md", b"x" * number)
        hub.put("org/name", "data/a.jsonl", b'{"text": "one"}\n')
        output = tmp_path / str(number)
        run_job(make_job(Path("unused"), output, source={"uris": [f"{ROOT}/data/*.jsonl"]}), executor=inline())
        keys.append((read_index(output)["dataKey"], read_index(output)["digest"]))
    assert keys[0] == keys[1]


@pytest.mark.parametrize("uri", ["s3://bucket/out", "hf://datasets/org/name/out"])
def test_nothing_is_written_there(uri: str) -> None:
    refused = tokjob(str(TOKJOB), "run", "--source", "/etc/hostname", "--tokenizer", "bytes", "--output", uri)
    assert refused.returncode == 2
    assert "output.uri" in refused.stderr and "gs://bucket" in refused.stderr
