"""Shards that rot between the start that wrote them and the index: read again, and written again."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.command_line import sample_texts
from support.corpus import json_lines
from support.engine.inline import inline
from support.runs import difference, leftovers, make_job, read_index
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.cli.progress import describe
from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.events import Checking, Event, Progress, Warned
from tokenization_worker.run.run import run_job
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.verification.verify import verify

SHARDS = 6


class Killed(Exception):
    """The end of a start."""


@dataclass
class Bench:
    """A run that was killed when a few shards were written; `expected` is what it was to make."""

    folder: Path
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.output, self.expected = self.folder / "out", self.folder / "expected"
        (self.folder / "src").mkdir()
        (self.folder / "src" / "a.jsonl").write_bytes(json_lines(sample_texts("a", 60)))
        run_job(self.job(self.expected), executor=inline())
        with pytest.raises(Killed):
            run_job(self.job(self.output), executor=inline(), on_progress=self._die_at_the_end)

    def job(self, output: Path) -> TokenizationJob:
        tokens = 500
        return make_job(self.folder / "src", output, tokenizer={"name": "bytes"}, output={"shards": {"tokens": tokens}})

    @staticmethod
    def _die_at_the_end(event: Event) -> None:
        if isinstance(event, Progress) and event.shards_done == event.shards:
            raise Killed

    def finish(self, **options: Callable[[], bool]) -> None:
        run_job(self.job(self.output), executor=inline(), on_progress=self.events.append, **options)

    def require_right(self) -> None:
        assert difference(self.output, self.expected) is None
        assert read_index(self.output)["digest"] == read_index(self.expected)["digest"]
        assert leftovers(self.output) == []

    def warnings(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, Warned)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def flip_a_bit(path: Path) -> None:
    """Flip a bit as a disk does: size, times and inode stay."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(status.st_size * 2 // 3)
        [byte] = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_ino == status.st_ino


def test_changed_shards_of_an_earlier_start_are_written_again(bench: Bench) -> None:
    shards = sorted((bench.output / "train").glob("*.npy"))
    assert len(shards) >= SHARDS
    for path in (shards[0], shards[3], shards[-1]):
        flip_a_bit(path)
    bench.finish()
    bench.require_right()
    [warning] = bench.warnings()
    assert f"shards whose bytes changed after an earlier start wrote them: 3, the first: {shards[0]}" in warning
    assert "This run writes them again" in warning
    assert verify(str(bench.output), processes=1).findings == ()


def test_every_flip_is_found(bench: Bench) -> None:
    for path in sorted((bench.output / "train").glob("*.npy")):
        flip_a_bit(path)
    bench.finish()
    bench.require_right()


def test_a_changed_documents_sidecar_is_written_again(bench: Bench) -> None:
    flip_a_bit(bench.output / "_tokenization" / "documents" / "train" / "00000002")
    bench.finish()
    bench.require_right()
    assert verify(str(bench.output), processes=1).findings == ()


def test_shards_of_the_start_itself_are_not_read_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    read_range = LocalStore.read_range

    def note(store: LocalStore, path: str, start: int, end: int) -> bytes:
        read.append(path)
        return read_range(store, path, start, end)

    monkeypatch.setattr(LocalStore, "read_range", note)
    run_job(bench.job(bench.folder / "fresh"), executor=inline())
    assert [path for path in read if path.endswith(".npy")] == []
    bench.finish()
    assert len({path for path in read if path.endswith(".npy")}) >= SHARDS
    read.clear()
    run_job(bench.job(bench.output), executor=inline())  # complete already: nothing is looked at
    assert read == []


def test_the_reading_is_told_and_can_be_stopped(bench: Bench) -> None:
    bench.finish()
    [first] = [event for event in bench.events if isinstance(event, Checking)]
    assert first.shards >= SHARDS
    assert (first.shards_done, first.bytes_done) == (0, 0)
    assert first.bytes_total == sum(path.stat().st_size for path in (bench.output / "train").glob("*.npy"))
    assert f"0 of {first.shards} shards of earlier starts read again" in describe(first, 0.0)


def test_a_stop_ends_the_reading_and_commits_nothing(bench: Bench) -> None:
    with pytest.raises(Stopped):
        bench.finish(should_stop=lambda: True)
    assert not (bench.output / "index.json").exists()
    bench.finish()
    bench.require_right()
