"""Engines in a process of their own: what they answer, whom they blame, and that they end with their worker."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from support.command_line import sample_texts
from support.corpus import json_lines
from support.engine.inline import inline
from support.places import PROGRAMS
from support.runs import difference, leftovers, make_job
from tokenization_worker.api.data import DType
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.engine.local import LocalExecutor
from tokenization_worker.errors import TemporaryError
from tokenization_worker.output import layout
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.processes import WORKER_BYTES, CopyDied, compute_in_copy, exit_words, free_memory
from tokenization_worker.run.run import run_job
from tokenization_worker.tokenizers.base import KillsEngine
from tokenization_worker.tokenizers.isolation import supervisor
from tokenization_worker.tokenizers.isolation.engine_process import Role
from tokenization_worker.tokenizers.isolation.supervisor import Isolation, memory_limit
from tokenization_worker.tokenizers.load import load_tokenizer

pytestmark = pytest.mark.copies

DEADLINE_S = 120
HANG = """
import sys
from tokenization_worker.api.data import DType
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.tokenizers.isolation.supervisor import Isolation
from tokenization_worker.tokenizers.isolation.engine_process import Role
data = resolve_data(TokenizationJob.from_yaml(sys.argv[1]))
Isolation(data, "bytes").encode(Role.ENGINE, ["<hangs>"])
"""


@pytest.fixture
def deaths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Processes that are started from scratch die of marked texts, and leave a note here."""
    folder = tmp_path / "deaths"
    folder.mkdir()
    hook = str(PROGRAMS / "poisoned")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([hook, *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("POISON_DRIVER", "0")
    monkeypatch.setenv("POISON_FOLDER", str(folder))
    return folder


def context_of(tokenizer: str = "bytes", engine: str = "bytes", **fields: object) -> RunContext:
    job = make_job(Path("/src"), Path("/out"), {"tokenizer": {"name": tokenizer}}, fields)
    return RunContext(resolve_data(job), "plan", 0, engine, DType.UINT32, 1, "")


def isolation_of(context: RunContext) -> Isolation:
    return Isolation(context.data, context.engine)


@pytest.mark.parametrize(
    ("tokenizer", "engine"), [("bytes", "bytes"), ("gpt2", "tiktoken"), ("gpt2", "fastokens")], ids=str
)
def test_isolated_engines_give_the_tokens_of_their_own(tokenizer: str, engine: str) -> None:
    context = context_of(tokenizer, engine)
    texts = ["", *sample_texts("a", 30), "x" * 300_000]
    own = load_tokenizer(context.data.tokenizer).reference.encode(texts)
    with isolation_of(context) as isolated:
        for role in Role:
            ids, ends = isolated.engine(engine, role).encode(texts)
            assert ids.dtype == np.uint32
            assert np.array_equal(ids, own.ids)
            assert np.array_equal(ends, own.ends)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("texts", "blamed", "expected_deaths"),
    [
        (["<segfault>"], 0, 1),
        (["fine", "<segfault>", "fine"], 1, 2),
        (["<killed>"], 0, 2),
        (["fine", "<killed>"], 1, 2),
    ],
    ids=["alone", "in company", "alone by a kill", "in company by a kill"],
)
def test_only_who_kills_alone_is_blamed(
    texts: list[str], blamed: int, expected_deaths: int, deaths: Path, tmp_path: Path
) -> None:
    with isolation_of(context_of()) as isolated:
        with pytest.raises(KillsEngine) as caught:
            isolated.encode(Role.ENGINE, texts)
        assert caught.value.document == blamed
        assert len(list(deaths.iterdir())) == expected_deaths
        assert [ids.tolist() for ids in isolated.encode(Role.ENGINE, ["a", "b"])] == [[97], [98]]


@pytest.mark.usefixtures("deaths")
def test_who_survives_alone_is_encoded_and_not_blamed() -> None:
    texts = ["fine", "<dies later>", "fine"]
    with isolation_of(context_of()) as isolated:
        encoded = isolated.encode(Role.ENGINE, texts)
    assert [bytes(ids.tolist()).decode() for ids in encoded] == texts


def test_a_process_that_is_stopped_from_outside_blames_nobody(deaths: Path) -> None:
    with isolation_of(context_of()) as isolated, pytest.raises(TemporaryError) as caught:
        isolated.encode(Role.ENGINE, ["<terminated>"])
    assert caught.value.reason == "WorkerDied"
    assert "killed by SIGTERM" in caught.value.message


def test_a_process_that_cannot_start_blames_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_COMMAND", "raise SystemExit(3)")
    with (
        isolation_of(context_of()) as isolated,
        pytest.raises(TemporaryError, match=r"before it was ready: exit code 3"),
    ):
        isolated.encode(Role.ENGINE, ["fine"])


def test_what_the_engine_raises_is_raised_here() -> None:
    lone_surrogate = "\ud800"
    with isolation_of(context_of()) as isolated:
        with pytest.raises(UnicodeEncodeError):
            isolated.encode(Role.ENGINE, ["fine", lone_surrogate, "fine"])
        assert [ids.tolist() for ids in isolated.encode(Role.ENGINE, ["a"])] == [[97]]


@pytest.mark.usefixtures("deaths")
def test_an_error_of_the_system_is_raised_here_and_blames_nobody() -> None:
    with isolation_of(context_of()) as isolated:
        with pytest.raises(FileNotFoundError, match="a table of the library"):
            isolated.encode(Role.ENGINE, ["fine", "<os error>"])
        assert [ids.tolist() for ids in isolated.encode(Role.ENGINE, ["a"])] == [[97]]


def test_the_process_does_not_outlive_its_worker(deaths: Path, tmp_path: Path) -> None:
    manifest = make_job(Path("/src"), Path("/out"), {"tokenizer": {"name": "bytes"}}).to_yaml()
    worker = subprocess.Popen([sys.executable, "-c", HANG, manifest])
    deadline = time.monotonic() + DEADLINE_S
    while not (notes := list(deaths.iterdir())):
        assert worker.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    encoder = os.pidfd_open(int(notes[0].name.rpartition(" ")[2]))
    try:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        assert select.select([encoder], [], [], DEADLINE_S)[0]
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(encoder, signal.SIGKILL)
        os.close(encoder)


@pytest.mark.parametrize(
    ("free", "max_bytes", "expected"),
    [(0, "64Mi", WORKER_BYTES), (0, "128Mi", 2 * WORKER_BYTES), (0, "1Ki", WORKER_BYTES), (8 << 30, "64Mi", 6 << 30)],
    ids=["none free", "large documents", "small documents", "much free"],
)
def test_a_document_may_take_what_is_free_and_never_less_than_a_worker_has(
    free: int, max_bytes: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "free_memory", lambda: free)
    assert memory_limit(context_of(documents={"maxBytes": max_bytes}).data) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 0),
        ({"meminfo": "MemTotal: 900 kB\nMemAvailable: 500 kB\n"}, 512_000),
        ({"meminfo": "MemAvailable: 500 kB\n", "memory.max": "max\n", "memory.current": "1\n"}, 512_000),
        (
            {
                "meminfo": "MemAvailable: 500 kB\n",
                "memory.max": "90000\n",
                "memory.current": "80000\n",
                "memory.stat": "anon 1\nactive_file 300\ninactive_file 700\n",
            },
            11_000,
        ),
        ({"memory.max": "90000\n", "memory.current": "95000\n"}, 0),
    ],
    ids=["unknown", "machine", "no limit", "container", "over the limit"],
)
def test_what_is_free_is_the_machines_or_the_containers(files: dict[str, str], expected: int, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert free_memory(tmp_path, tmp_path / "meminfo") == expected


def test_exits_have_words() -> None:
    assert [exit_words(code) for code in (7, -11, -63)] == [
        "exit code 7",
        "killed by SIGSEGV",
        "killed by signal 63",
    ]


WITH_THREADS = """
import sys, threading
from tokenization_worker import Options, TokenizationJob, run_job
threading.Thread(target=threading.Event().wait, daemon=True).start()
print(run_job(TokenizationJob.from_yaml(sys.argv[1]), options=Options(processes=1)).documents_quarantined)
"""


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("way", ["<segfault>", "<no memory>", "<killed>"])
def test_the_sample_of_a_plan_kills_no_process_with_threads(way: str, deaths: Path, tmp_path: Path) -> None:
    """Such as a driver that reports: it cannot be copied, and every start samples again."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.jsonl").write_bytes(json_lines([way, *sample_texts("a", 60), way]))
    job = make_job(tmp_path / "src", tmp_path / "out", {"tokenizer": {"name": "bytes"}, "maxQuarantined": 2})
    (tmp_path / "job.yaml").write_text(job.to_yaml())
    done = subprocess.run(
        [sys.executable, "-c", WITH_THREADS, str(tmp_path / "job.yaml")],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2\n"


def test_workers_that_are_started_from_scratch_are_replaced_too(deaths: Path, tmp_path: Path) -> None:
    source, output, expected = tmp_path / "src", tmp_path / "out", tmp_path / "expected"
    source.mkdir()
    texts = sample_texts("a", 60)
    (source / "a.jsonl").write_bytes(json_lines([*texts, "<segfault>"]))
    fields = {"tokenizer": {"name": "bytes"}, "maxQuarantined": 1}
    finished = run_job(
        make_job(source, output, fields), executor=lambda prepared, context: LocalExecutor(2, fork=False)
    )
    assert finished.documents_quarantined == 1
    (source / "a.jsonl").write_bytes(json_lines(texts))
    run_job(make_job(source, expected, fields), executor=inline())
    assert difference(output, expected) is None
    assert leftovers(output) == []
    assert len(list((output / layout.CRASH_VERDICTS).iterdir())) == 1


def test_a_copy_computes_raises_and_dies_as_the_original_would() -> None:
    here = os.getpid()
    assert compute_in_copy(os.getpid) != here
    with pytest.raises(ZeroDivisionError):
        compute_in_copy(lambda: 1 // 0)
    with pytest.raises(CopyDied, match="exit code 7"):
        compute_in_copy(lambda: os._exit(7))
    with pytest.raises(CopyDied, match="out of memory"):
        compute_in_copy(lambda: bytearray(1 << 60))
