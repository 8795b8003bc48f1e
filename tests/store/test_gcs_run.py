"""The same job on gs://, through the emulator and the command line: same bytes, resume, proof."""

from __future__ import annotations

import signal
from pathlib import Path

import orjson
import pytest

from support.corpus import Corpus
from support.engine.inline import inline
from support.objects import differing_shards, upload
from support.runs import TOKJOB, Held, make_job, run_command
from support.stores.gcs_emulator import gcs_bucket, gcs_host, gcs_uri
from tokenization_worker import open_dataset, run_job
from tokenization_worker.storage.open import open_store

pytestmark = pytest.mark.slow

__all__ = ["gcs_bucket", "gcs_host", "gcs_uri"]

SHARD_TOKENS = 50_000


@pytest.fixture(scope="module")
def expected(mixed: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same job's dataset on local disks."""
    output = tmp_path_factory.mktemp("local") / "out"
    limits = {"maxQuarantined": "100%", "maxCorruptFiles": "100%"}
    run_job(make_job(mixed.folder, output, limits, output={"shards": {"tokens": SHARD_TOKENS}}), executor=inline())
    return output


def arguments(source: str, output: str, *more: str) -> list[str]:
    flags = ["--source", source, "--tokenizer", "gpt2", "--output", output]
    limits = ["--maxQuarantined", "100%", "--maxCorruptFiles", "100%"]
    return [str(TOKJOB), "run", *flags, *limits, "--output.shards.tokens", str(SHARD_TOKENS), *more]


def test_a_job_from_bucket_to_bucket_gives_the_local_bytes(mixed: Corpus, gcs_uri: str, expected: Path) -> None:
    upload(mixed.folder, f"{gcs_uri}/corpus")
    output = f"{gcs_uri}/out"
    done = run_command(arguments(f"{gcs_uri}/corpus", output, "--processes", "2"))
    assert done.returncode == 0, done.stderr
    assert differing_shards(output, expected) == []
    assert [entry.path for entry in open_store(output).list("_tokenization/") if "segments" in entry.path] == []
    verified = run_command([str(TOKJOB), "verify", output, "--full", "--processes", "1"])
    assert verified.returncode == 0, verified.stdout + verified.stderr
    tokens = open_dataset(output)["train"].tokens(SHARD_TOKENS - 10, SHARD_TOKENS + 10)
    assert tokens.tolist() == open_dataset(expected)["train"].tokens(SHARD_TOKENS - 10, SHARD_TOKENS + 10).tolist()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)], ids=["kill", "terminate"])
def test_a_run_on_a_bucket_that_was_stopped_goes_on_where_it_was(
    mixed: Corpus, gcs_uri: str, expected: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    output = f"{gcs_uri}/out"
    command = arguments(str(mixed.folder), output, "--rangeBytes", "64Ki", "--processes", "2", "--json")
    running = Held(command, tmp_path / "stopped")
    running.wait_for_ranges(1)
    running.process.send_signal(number)
    assert running.wait() == code, running.errors
    done_before = sum(1 for _ in open_store(output).list("_tokenization/ledger/0/ranges/"))
    assert done_before > 0
    again = run_command(command)
    assert again.returncode == 0, again.stderr
    events_again = [orjson.loads(line) for line in again.stdout.splitlines()]
    resumed = next(event for event in events_again if event["event"] == "resumed")
    assert resumed["ranges_done"] == done_before
    assert differing_shards(output, expected) == []
