"""Corpora that several test modules read; made once a session, never written to."""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
from collections import Counter
from collections.abc import Hashable, Iterator
from itertools import islice
from multiprocessing import get_context
from multiprocessing.context import BaseContext
from pathlib import Path

import pytest
from hypothesis import settings

from support import runs
from support.command_line import sample_texts
from support.corpus import Corpus, json_lines, mixed_corpus, one_large_file, tiny_files
from support.local_servers import ask_without_proxies
from support.ranks_once import parse_ranks_once
from support.stores.gcs_fake import FakeGcs, serve_fake_gcs
from support.syncs import skip_syncs
from support.tokenizer_models import write_ranks
from tokenization_worker import processes
from tokenization_worker.engine import local
from tokenization_worker.planning import encoded_sample
from tokenization_worker.tokenizers.checks import behaviour
from tokenization_worker.tokenizers.checks.check_texts import random_texts
from tokenization_worker.verification import workers

pytest_plugins = ["support.failed_tests"]

settings.register_profile("patient", deadline=None)  # how long an example takes says how busy the machine is
settings.load_profile("patient")
parse_ranks_once()
skip_syncs()
ask_without_proxies()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # begun in the background: what tests start would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _leave_out_what_is_not_sampled(items)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)  # first what takes long: no core waits for it at the end


def pytest_collection_finish() -> None:
    """What is there now stays: collections need not look at it, nor write to memory that forks share."""
    gc.collect()
    gc.freeze()


def _leave_out_what_is_not_sampled(items: list[pytest.Item]) -> None:
    """A table of several things' values: steps that share no factor with their numbers meet all values of each. Where
    they cannot, `of` says of a case's parameters what kind it is: the first one of each kind is not left out."""
    seen: Counter[str] = Counter()
    kinds: set[tuple[str, Hashable]] = set()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is not None:
            assert isinstance(item, pytest.Function)
            table = item.nodeid.partition("[")[0]
            kind = (table, sampled.kwargs["of"](item.callspec.params) if "of" in sampled.kwargs else None)
            if seen[table] % sampled.args[0] and kind in kinds:
                item.add_marker(pytest.mark.exhaustive)
            seen[table] += 1
            kinds.add(kind)


@pytest.fixture(autouse=True, scope="module")
def _memory_goes_back_to_the_system() -> Iterator[None]:
    """After each module: a fork takes 50 ms for each gigabyte of its parent, and thousands of tests fork."""
    yield
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(autouse=True)
def _forks_of_processes_with_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and `verify` fork their workers, as those of `tokjob` do, though an earlier test left a thread: no fork
    touches it, a new interpreter would take a second of a core, and it would not have what a test replaced."""

    spawn = processes.start_method(may_fork=False)

    def start_method(*, may_fork: bool) -> BaseContext:
        return get_context("fork") if may_fork else spawn

    for module in (local, processes, workers):
        monkeypatch.setattr(module, "start_method", start_method)


@pytest.fixture(autouse=True)
def _samples_of_plans(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan encodes its sample in this process, and not in a copy: thousands of tests plan, and a copy of this process
    takes 20 ms."""
    if request.node.get_closest_marker("copies") is None:
        monkeypatch.setattr(encoded_sample, "compute_in_copy", lambda compute: compute())


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 2,000 ranks, which is no known encoding: its job names the pattern."""
    return write_ranks(tmp_path_factory.mktemp("ranks") / "some.tiktoken", 2000)


@pytest.fixture
def few_code_points(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is recorded of a tokenizer is recorded anew, and of so few characters and texts that it takes no time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(behaviour, "_DENSE", (range(0x2000, 0x2100),))
    monkeypatch.setattr(behaviour, "_THIN", ())
    monkeypatch.setattr(behaviour, "_LONG_RUN", 1000)
    monkeypatch.setattr(behaviour, "random_texts", lambda: islice(random_texts(), 30))


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corpora")


@pytest.fixture(scope="session")
def mixed(corpora: Path) -> Corpus:
    return mixed_corpus(corpora / "mixed")


@pytest.fixture(scope="session")
def large_file(corpora: Path) -> Corpus:
    return one_large_file(corpora / "large-file")


@pytest.fixture(scope="session")
def tiny(corpora: Path) -> Corpus:
    return tiny_files(corpora / "tiny")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGcs]:
    with serve_fake_gcs() as fake:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.url)
        yield fake


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with one file of 60 documents."""
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(json_lines(sample_texts("a", 60)))
    return folder


@pytest.fixture(autouse=True)
def _nothing_outlives_its_test() -> Iterator[None]:
    yield
    runs.kill_all()
