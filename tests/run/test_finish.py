"""What the end of a run refuses to commit: sums that differ, shards that are gone, an index that says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from support.command_line import sample_texts
from support.corpus import json_lines
from support.engine.inline import inline
from support.runs import difference, leftovers, make_job, read_index
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.engine.task import Task
from tokenization_worker.errors import DataError, TemporaryError
from tokenization_worker.events import Event, Progress, Watcher
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import Disagreement
from tokenization_worker.output.index import dump_index
from tokenization_worker.output.layout import ShardKey
from tokenization_worker.output.plan_file import read_plan
from tokenization_worker.pipelines.tokenize.commit import commit
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.ledger import TokenizeLedger, read_tokenize_ledger
from tokenization_worker.planning.prepare import prepare
from tokenization_worker.run.run import run_job
from tokenization_worker.storage.local.store import LocalStore


def at_the_end(act: Callable[[], object]) -> Watcher:
    """Calls `act` when the last shard has its receipt and nothing is committed."""

    def watch(event: Event) -> None:
        if isinstance(event, Progress) and event.shards_done == event.shards:
            act()

    return watch


@dataclass(frozen=True)
class Runs:
    """A source of 60 documents, some of them empty, and the dataset that a run makes of it."""

    folder: Path
    position: str = "Before"

    @property
    def output(self) -> Path:
        return self.folder / "out"

    @property
    def expected(self) -> Path:
        return self.folder / "expected"

    def job(self, output: Path) -> TokenizationJob:
        return make_job(
            self.folder / "src",
            output,
            tokenizer={"name": "bytes", "delimiter": {"position": self.position}},
            output={"shards": {"tokens": 500}, "splits": [{"name": "val", "shards": 1}, {"name": "train"}]},
        )


def make_runs(folder: Path, position: str = "Before") -> Runs:
    texts = ["", *sample_texts("a", 60), ""]
    (folder / "src").mkdir()
    (folder / "src" / "a.jsonl").write_bytes(json_lines(texts))
    runs = Runs(folder, position)
    run_job(runs.job(runs.expected), executor=inline())
    return runs


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return make_runs(tmp_path)


@pytest.mark.parametrize("field", ["digest", "dataKey"])
def test_an_index_of_other_data_that_was_committed_meanwhile_stays(field: str, runs: Runs) -> None:
    other = dump_index(read_index(runs.expected) | {field: "of something else"})

    def put_index() -> None:
        (runs.output / "index.json").write_bytes(other)

    with pytest.raises(Disagreement) as caught:
        run_job(runs.job(runs.output), executor=inline(), on_progress=at_the_end(put_index))
    assert caught.value.reason == "NotDeterministic"
    assert (runs.output / "index.json").read_bytes() == other


def test_a_shard_that_is_gone_at_the_end_is_not_committed_and_mended_by_the_next_start(runs: Runs) -> None:
    victim = runs.output / "train" / "train_000002.npy"
    with pytest.raises(TemporaryError) as caught:
        run_job(runs.job(runs.output), executor=inline(), on_progress=at_the_end(victim.unlink))
    assert caught.value.reason == "ShardChanged"
    assert str(victim) in caught.value.message
    assert not (runs.output / "index.json").exists()

    run_job(runs.job(runs.output), executor=inline())
    assert difference(runs.output, runs.expected) is None
    assert leftovers(runs.output) == []


SHARD = ShardKey("train", 2)


def lose(ledger: TokenizeLedger) -> None:
    ledger.forget_shard(SHARD)


def count(more: int) -> Callable[[TokenizeLedger], None]:
    def change(ledger: TokenizeLedger) -> None:
        ledger.add_shard(replace(ledger.shards[SHARD], documents=ledger.shards[SHARD].documents + more))

    return change


CHANGES: dict[str, tuple[str, Callable[[TokenizeLedger], None], str]] = {
    "a shard is lost": ("Before", lose, "tokens in files"),
    "a document too many": ("Before", count(1), "documents in files"),
    "a document too few": ("After", count(-1), "documents in files"),
    "a shard is lost, no delimiter": ("None", lose, "tokens in files"),
    "documents too many, no delimiter": ("None", count(3), "documents in files"),
}


@pytest.mark.parametrize(("position", "change", "said"), CHANGES.values(), ids=CHANGES)
def test_receipts_whose_sums_differ_are_not_committed(
    position: str, change: Callable[[TokenizeLedger], None], said: str, tmp_path: Path
) -> None:
    runs = make_runs(tmp_path, position)
    contexts: list[RunContext] = []

    def note(task: Task) -> None:
        contexts.append(task.context)

    run_job(runs.job(runs.output), executor=inline(note))
    (runs.output / "index.json").unlink()
    store, prepared = LocalStore(runs.output), prepare(runs.job(runs.output))
    plan = read_plan(store)
    assert plan is not None
    ledger = read_tokenize_ledger(store, plan, 0)
    change(ledger)
    with pytest.raises(Disagreement, match=said) as caught:
        commit(store, plan, contexts[0], ledger, prepared.tokenizer, prepared.limits)
    assert caught.value.reason == "NotConserved"
    assert not (runs.output / "index.json").exists()


def test_documents_without_tokens_are_written_and_begin_in_no_shard(tmp_path: Path) -> None:
    index = read_index(make_runs(tmp_path, "None").expected)
    assert index["conservation"]["written"] == 62
    assert sum(split["documents"] for split in index["splits"]) == 60


def test_epochs_that_vanish_during_a_run_stop_it_until_they_are_put_back(runs: Runs) -> None:
    epoch = runs.output / layout.epoch_path(0)
    content: list[bytes] = []

    def remove() -> None:
        content.append(epoch.read_bytes())
        epoch.unlink()

    with pytest.raises(DataError, match=r"epochs/0000\.json is missing"):
        run_job(runs.job(runs.output), executor=inline(), on_progress=at_the_end(remove))
    with pytest.raises(DataError, match=r"epochs/0000\.json is missing"):
        run_job(runs.job(runs.output), executor=inline())
    epoch.write_bytes(content[0])
    run_job(runs.job(runs.output), executor=inline())
    assert difference(runs.output, runs.expected) is None
