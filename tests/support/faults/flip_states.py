"""Outputs in the states that a bit can flip in: finished, killed in the middle, killed before the index.

All of one world lie, one after the other, at the same path: receipts and indexes name it. A state is kept as a copy
beside it and put back as often as it is asked for, so that its shards are still the files that their receipts name.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from support.command_line import dataset_of
from support.corpus import BAD_LINES, CorpusWriter
from support.engine.inline import inline
from support.runs import files_below, make_job
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.engine.task import Task
from tokenization_worker.errors import SpecError
from tokenization_worker.events import Event, Progress, Watcher, ignore
from tokenization_worker.output import layout
from tokenization_worker.output.last_failure import recording_failure
from tokenization_worker.output.ledger.crash_verdicts import record_crash_verdict
from tokenization_worker.output.plan_file import read_plan
from tokenization_worker.output.record import dump_record, load_record
from tokenization_worker.run.run import run_job
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.storage.local.upload import version_of

FINISHED = "finished"
SHARD_TOKENS = 9_000
KILLED_AFTER = (8, 15, 23)
"""Of 31 tasks."""

FAILED = "PlantedFailure"
"""How the last start of each killed state failed."""

POISON = '<< this document has a verdict >> "quoted" Straße'


def _texts(name: str, count: int) -> list[str]:
    return [f"{name}{number} Straße 日本語 🦊. " * (number * 7 % 23 + 2) for number in range(count)]


class World:
    """A source, its job, and its states below `folder`. `truth`: what the finished dataset holds."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.output = folder / "out"
        corpus = CorpusWriter(folder / "src")
        corpus.jsonl(["", *_texts("a", 90)], blank_lines=True)
        corpus.jsonl(_texts("b", 40), pack="zstd")
        corpus.unusable_lines(_texts("c", 60), BAD_LINES)
        corpus.truncated_zstd(_texts("d", 30))
        corpus.jsonl([POISON, *_texts("e", 30)], pack="gzip")
        self.states: list[str] = []
        for tasks in KILLED_AFTER:
            self._make(f"killed after {tasks} tasks", tasks)
        self._make("killed before the index", None)
        self.run()
        self.run(rerun="first")
        self._keep(FINISHED)
        self.truth = dataset_of(self.output)
        self.index: dict[str, Any] = orjson.loads((self.output / layout.INDEX).read_bytes())

    def job(self, rerun: str = "") -> TokenizationJob:
        fields: dict[str, Any] = {"rerunToken": rerun} if rerun else {}
        return make_job(
            self._folder / "src",
            self.output,
            tokenizer={"name": "bytes"},
            output={
                "shards": {"tokens": SHARD_TOKENS},
                "splits": [{"name": "val", "shards": 1}, {"name": "train"}],
            },
            rangeBytes="4Ki",
            maxQuarantined=100,
            maxCorruptFiles=1,
            **fields,
        )

    def run(
        self, *, rerun: str = "", before: Callable[[Task], None] = lambda task: None, watch: Watcher = ignore
    ) -> None:
        """Run the job to its end, as `run_job` does in this process."""
        run_job(self.job(rerun), executor=inline(before), on_progress=watch)

    def _make(self, name: str, tasks: int | None) -> None:
        """Kill a run after so many tasks (None: after all of them) and keep what it leaves."""
        done = 0

        def before(task: Task) -> None:
            nonlocal done
            if done == tasks:
                raise Stopped
            done += 1

        def at_the_end(event: Event) -> None:
            if tasks is None and isinstance(event, Progress) and event.shards_done == event.shards:
                raise Stopped

        def at_the_start(task: Task) -> None:
            raise Stopped

        self._start_anew(at_the_start)
        try:
            self.run(before=before, watch=at_the_end)
        except Stopped:
            pass
        else:
            raise AssertionError(f"the run ended before {tasks} tasks")
        with suppress(SpecError), recording_failure(LocalStore(self.output), lambda: True):
            raise SpecError(FAILED, "the words of the last start", next_step="correct the job")
        self._keep(name)

    def _start_anew(self, stop: Callable[[Task], None]) -> None:
        """A plan, and the verdict on a document that is to kill its worker."""
        shutil.rmtree(self.output, ignore_errors=True)
        try:
            self.run(before=stop)
        except Stopped:
            store = LocalStore(self.output)
            plan = read_plan(store)
            assert plan is not None
            source = next(part for r in range(plan.n_ranges) for part in plan.slices(r) if part.uri.endswith(".gz"))
            record_crash_verdict(store, source, 0, POISON, "killed by SIGSEGV")

    def _keep(self, name: str) -> None:
        self.states.append(name)
        shutil.copytree(self.output, self._folder / name)

    def put_back(self, state: str) -> None:
        """The output as it was in `state`."""
        shutil.rmtree(self.output, ignore_errors=True)
        shutil.copytree(self._folder / state, self.output)
        for path in (self.output / layout.LEDGER).glob("*/shards/*/*.json"):
            receipt = load_record(path.read_bytes())
            receipt["version"] = version_of((self.output / receipt["path"]).stat())
            path.write_bytes(dump_record(receipt))

    @property
    def source(self) -> Path:
        return self._folder / "src"

    def size(self, state: str, path: str) -> int:
        return (self._folder / state / path).stat().st_size

    def files(self, state: str) -> Iterator[tuple[str, str]]:
        """(kind, path) of every file of a state that a run reads."""
        for path in sorted(files_below(self._folder / state)):
            kind = kind_of(path)
            if kind is not None:
                yield kind, path


_KINDS = {
    layout.INDEX: "index",
    layout.SHARDS_TABLE: "shards table",
    layout.FILES_TABLE: "files table",
    layout.QUARANTINE_TABLE: "quarantine table",
    layout.PLAN: "plan",
    layout.SAMPLES: "samples",
    layout.FAILURE: "last failure",
}
_FOLDERS = {
    layout.EPOCHS: "epoch",
    layout.VERDICTS: "verdict on a file",
    layout.CRASH_VERDICTS: "verdict on a document",
    layout.DOCUMENTS: "sidecar",
    layout.RERUNS: "proof",
}
_LEDGER = {
    "ranges": "range receipt",
    "shards": "shard receipt",
    "quarantine": "range list",
    "segments": "segment",
}


def kind_of(path: str) -> str | None:
    """The class of a file of an output; None for scratch, which no command reads. Raises `KeyError` for any other."""
    if path.startswith(f"{layout.OWN}tmp/"):
        return None
    if path in _KINDS:
        return _KINDS[path]
    if path.endswith(".npy"):
        return "shard"
    for folder, kind in _FOLDERS.items():
        if path.startswith(folder):
            return kind
    return _LEDGER[path.removeprefix(layout.LEDGER).split("/")[1]]
