"""Whole runs on the emulator behind the fault proxy, in this process: what `test_fault_runs` and `fault_chaos` share.

The corpus is small and has a bit of everything: every compression, unusable lines, a file that is damaged. A run takes
some hundred calls. Which call a fault hits is planned from the calls of a run without faults, so that a run may learn
to make fewer.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from support.corpus import BAD_LINES, CorpusWriter, take_documents
from support.engine.inline import inline
from support.runs import make_job, unexpected
from support.stores.fault_proxy import FaultProxy, Logged
from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.engine.task import Task
from tokenization_worker.errors import TokenizationError
from tokenization_worker.events import Finished
from tokenization_worker.output import layout
from tokenization_worker.pipelines.tokenize.ranges.range_task import TokenizeTask
from tokenization_worker.planning import scattering
from tokenization_worker.run.run import Options, run_job

RANGE_BYTES = "64Ki"
"""Less than the larger compressed files have: these are cut, and read by what is inflated."""

SHARD_TOKENS = 160_000
"""Two bytes each: more than a chunk, so that shards are written in many requests."""

SHUFFLE = {"shuffle": {"seed": 7}}
WINDOW_BYTES = 400_000
"""Of a shuffle, in this process: the corpus has several windows, each larger than a chunk."""

Outcome = Finished | TokenizationError


def make_corpus(folder: Path) -> Path:
    corpus = CorpusWriter(folder)
    corpus.unusable_lines(take_documents(30_000, first=200), BAD_LINES)
    corpus.truncated_zstd(take_documents(15_000, first=500))
    corpus.jsonl(take_documents(260_000, first=100), pack="zstd")
    corpus.jsonl(take_documents(300_000, first=700), pack="gzip")
    return corpus.finish().folder


_NUMBERS = count()


@dataclass
class Lab:
    """A bucket with a corpus, behind the proxy. `layout`: more fields of `output`; `expected`: what `dataset` says of a
    run without faults."""

    proxy: FaultProxy
    bucket: str
    source: str = "corpus"
    layout: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, str] = field(default_factory=dict)
    ranges: int = 0

    def new_output(self) -> str:
        """A prefix where nothing is."""
        return f"out-{next(_NUMBERS)}"

    def fill(self, folder: Path) -> None:
        """Upload a corpus, and note the dataset that a run makes of it."""
        for path in sorted(folder.iterdir()):
            self.proxy.service.put(self.bucket, f"{self.source}/{path.name}", path.read_bytes())
        self.learn()

    def learn(self) -> None:
        """Note the dataset that a run makes of the corpus, which another lab has uploaded."""
        output, ran = self.new_output(), Counter[int]()
        self.proxy.plan()
        finished = self.run(output, ran)
        assert isinstance(finished, Finished), finished
        self.expected = self.dataset(output)
        self.ranges = len(ran)

    def run(
        self,
        output: str,
        ran: Counter[int] | None = None,
        *,
        stop_after: int | None = None,
        max_corrupt_files: int | str = "100%",
    ) -> Outcome:
        """One start; `ran` counts how often each range is begun. `stop_after`: so many tasks, and then it stops.

        Any other end than success or an error of ours is raised.
        """
        ran = Counter() if ran is None else ran
        tasks = count(1)
        last = 0

        def before(task: Task) -> None:
            nonlocal last
            last = next(tasks)
            if isinstance(task, TokenizeTask):
                ran[task.range_id] += 1

        job = make_job(
            Path("nowhere"),
            Path("nowhere"),
            source={"uris": [f"gs://{self.bucket}/{self.source}"]},
            tokenizer={"name": "bytes"},
            output={"uri": f"gs://{self.bucket}/{output}", "shards": {"tokens": SHARD_TOKENS}, **self.layout},
            rangeBytes=RANGE_BYTES,
            maxQuarantined="100%",
            maxCorruptFiles=max_corrupt_files,
        )
        should_stop: Callable[[], bool] = lambda: stop_after is not None and last >= stop_after  # noqa: E731
        try:
            return run_job(job, options=Options(processes=1), executor=inline(before), should_stop=should_stop)
        except TokenizationError as error:
            return error

    def half_done(self, output: str, tasks: int) -> None:
        """Run until so many tasks are done."""
        try:
            self.run(output, stop_after=tasks)
        except Stopped:
            return
        raise AssertionError(f"a run of more than {tasks} tasks ended")

    def dataset(self, output: str) -> dict[str, str]:
        """The objects of the dataset that must be the same in every run, with their CRC32C; the index without `run`."""
        found = self.proxy.service.names(self.bucket, f"{output}/")
        ours = {name.removeprefix(f"{output}/"): crc for name, crc in found.items()}
        same = {path: crc for path, crc in ours.items() if _is_dataset(path)}
        if (index := self.proxy.service.content(self.bucket, f"{output}/{layout.INDEX}")) is not None:
            facts = json.loads(index)
            del facts["run"]
            same[layout.INDEX] = json.dumps(facts, sort_keys=True)
        return same

    def leftovers(self, output: str) -> list[str]:
        found = self.proxy.service.names(self.bucket, f"{output}/")
        return unexpected(name.removeprefix(f"{output}/") for name in found)

    def snapshot(self, output: str) -> dict[str, bytes]:
        """All objects of an output."""
        service = self.proxy.service
        return {name: service.content(self.bucket, name) or b"" for name in service.names(self.bucket, f"{output}/")}

    def restore(self, output: str, snapshot: dict[str, bytes]) -> None:
        """Make an output what it was, but for generations."""
        for name in self.proxy.service.names(self.bucket, f"{output}/"):
            self.proxy.service.remove(self.bucket, name)
        self.proxy.service.deleted.clear()
        for name, data in snapshot.items():
            self.proxy.service.put(self.bucket, name, data)

    def record(self, act: Callable[[], object]) -> list[Logged]:
        """The calls that something makes when no fault happens."""
        self.proxy.plan()
        act()
        return list(self.proxy.log)


def _is_dataset(path: str) -> bool:
    """Shards, sidecars and tables; the ledger tells of the run, too."""
    return path.endswith((".npy", ".zst")) or path.startswith("_tokenization/documents/")


@contextmanager
def small_windows() -> Iterator[None]:
    """Until the end of the block, windows of a shuffle have `WINDOW_BYTES` in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scattering, "LEAST_WINDOW_BYTES", WINDOW_BYTES)
        yield


@contextmanager
def emulator_host(url: str) -> Iterator[None]:
    """Until the end of the block, `gs://` means the service at `url`."""
    before = os.environ.get("STORAGE_EMULATOR_HOST")
    os.environ["STORAGE_EMULATOR_HOST"] = url
    try:
        yield
    finally:
        if before is None:
            del os.environ["STORAGE_EMULATOR_HOST"]
        else:
            os.environ["STORAGE_EMULATOR_HOST"] = before
