"""A local source that changes under a run: what stops, what is told, and that no receipt tells of changed bytes."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.command_line import sample_texts
from support.corpus import json_lines, zstd_frames
from support.engine.inline import inline
from support.faults.sources_in_motion import Way
from support.runs import difference, make_job, read_index
from tokenization_worker.api.data import SourceFormat
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.engine.task import Task
from tokenization_worker.errors import ChangedError, TemporaryError
from tokenization_worker.events import Event, Progress, Warned
from tokenization_worker.inspect.preview import make_plan, preview_run
from tokenization_worker.output import layout
from tokenization_worker.output.plan_file import Plan, read_plan
from tokenization_worker.planning import make_plan as planning
from tokenization_worker.planning.make_plan import make_plan_of
from tokenization_worker.planning.prepare import prepare
from tokenization_worker.readers.decompress import StoredBytes
from tokenization_worker.readers.document_batch import Compression, FileKind, FileSlice, ReadOptions
from tokenization_worker.readers.open import read_documents
from tokenization_worker.readers.resumable_decoder import Content, SetAside
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.storage.base import ByteReader
from tokenization_worker.storage.local.source import LocalSource, stat_again
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.storage.source_file import SourceFile, source_changed
from tokenization_worker.storage.sources import list_source, open_as_seen, open_unchanged
from tokenization_worker.storage.unchanged import find_touched, hold, require_unchanged
from tokenization_worker.tokenizers.base import Encoded, KillsEngine
from tokenization_worker.tokenizers.byte_engine import ByteEngine
from tokenization_worker.verification.verify import verify

OLD_NS = 10**18 + 123
PLANNED = json_lines(["planned " * 100] * 10_000)
"""8 MB: several ranges, of several reads each."""


@dataclass
class Bench:
    """A source of a large file and a small one, and a run of it in this process that something happens to."""

    folder: Path
    events: list[Event] = field(default_factory=list)
    is_at_work: bool = False

    def __post_init__(self) -> None:
        self.file = self.folder / "src" / "a.jsonl"
        self.other = self.folder / "src" / "b.jsonl"
        self.output = self.folder / "out"
        self.file.parent.mkdir()
        self.file.write_bytes(PLANNED)
        self.other.write_bytes(json_lines(sample_texts("b", 20)))
        for path in (self.file, self.other):
            os.utime(path, ns=(OLD_NS, OLD_NS))

    def job(self, output: Path | None = None) -> TokenizationJob:
        spec: dict[str, Any] = {"tokenizer": {"name": "bytes"}, "output": {"shards": {"tokens": 3_000_000}}}
        return make_job(self.file.parent, output or self.output, spec, rangeBytes="3Mi")

    def change(self, way: Way) -> None:
        other = PLANNED.replace(b"planned", b"changed")
        match way:
            case Way.CUT:
                os.truncate(self.file, len(PLANNED) * 94 // 100)
            case Way.APPEND:
                with self.file.open("ab") as file:
                    file.write(json_lines(["more"]))
            case Way.IN_PLACE | Way.STEALTHILY:
                with self.file.open("r+b") as file:
                    file.write(other)
                if way is Way.STEALTHILY:
                    os.utime(self.file, ns=(OLD_NS, OLD_NS))
            case Way.RENAME:
                self.replace(other)
            case Way.DELETE:
                self.file.unlink()

    def replace(self, data: bytes) -> None:
        beside = self.folder / "beside"
        beside.write_bytes(data)
        os.utime(beside, ns=(OLD_NS, OLD_NS))
        beside.rename(self.file)

    def run(
        self, before: Callable[[Task], None] = lambda task: None, watch: Callable[[Event], None] | None = None
    ) -> None:
        def note(event: Event) -> None:
            self.events.append(event)
            if watch is not None:
                watch(event)

        def begin(task: Task) -> None:
            self.is_at_work = True
            before(task)

        run_job(self.job(), options=Options(processes=1), executor=inline(begin), on_progress=note)

    def warnings(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, Warned)]

    def receipts(self) -> list[str]:
        return sorted(path.name for path in (self.output / layout.LEDGER).glob("*/ranges/*"))

    def require_right(self) -> None:
        """The dataset is that of the planned files."""
        expected = self.folder / "expected"
        if not expected.exists():
            self.replace(PLANNED)
            run_job(self.job(expected), executor=inline())
        assert difference(self.output, expected) is None
        assert read_index(self.output)["digest"] == read_index(expected)["digest"]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def once(act: Callable[[], object]) -> Callable[[], None]:
    """`act`, the first time."""
    done: list[object] = []

    def act_once() -> None:
        if not done:
            done.append(None)
            act()

    return act_once


def while_encoding(monkeypatch: pytest.MonkeyPatch, bench: Bench, act: Callable[[], object]) -> None:
    """Call `act` when the engine gets its first documents of a task: there are more to be read."""
    encode, act_once = ByteEngine.encode, once(act)

    def act_and_encode(engine: ByteEngine, texts: Sequence[str]) -> Encoded:
        if bench.is_at_work:  # and does not plan any more
            act_once()
        return encode(engine, texts)

    monkeypatch.setattr(ByteEngine, "encode", act_and_encode)


def while_reading(monkeypatch: pytest.MonkeyPatch, bench: Bench, act: Callable[[], object]) -> None:
    """Call `act` when a task has read its first bytes: there are more to be read."""
    read, act_once = StoredBytes.read, once(act)

    def read_and_act(stored: StoredBytes, size: int = -1, /) -> bytes:
        data = read(stored, size)
        if bench.is_at_work:
            act_once()
        return data

    monkeypatch.setattr(StoredBytes, "read", read_and_act)


def at_the_end(act: Callable[[], object]) -> Callable[[Event], None]:
    """Call `act` when all shards are built and nothing is committed."""
    act_once = once(act)

    def watch(event: Event) -> None:
        if isinstance(event, Progress) and event.shards_done == event.shards:
            act_once()

    return watch


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", Way)
def test_a_range_that_was_read_while_its_file_changed_has_no_receipt(
    way: Way, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(ChangedError) as caught:
        while_reading(patch, bench, lambda: bench.change(way))
        bench.run()
    assert caught.value.reason == "SourceChanged"
    assert f"{bench.file} changed while it was read" in caught.value.message
    assert bench.receipts() == []
    bench.replace(PLANNED)
    bench.run()
    bench.require_right()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", Way)
def test_a_file_that_changed_between_two_ranges_is_not_read_on(way: Way, bench: Bench) -> None:
    def change(task: Task) -> None:
        if getattr(task, "range_id", 0) == 1:
            bench.change(way)

    with pytest.raises(ChangedError, match="SourceChanged") as caught:
        bench.run(change)
    assert str(bench.file) in caught.value.message
    assert bench.receipts() == ["00000000.json"]
    bench.replace(PLANNED)
    bench.run()
    bench.require_right()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", [way for way in Way if way is not Way.STEALTHILY])
def test_a_file_that_changed_after_it_was_read_is_not_committed(way: Way, bench: Bench) -> None:
    with pytest.raises(ChangedError) as caught:
        bench.run(watch=at_the_end(lambda: bench.change(way)))
    assert caught.value.reason == "SourceChanged"
    assert f"{bench.file} changed before the dataset was complete" in caught.value.message
    assert not (bench.output / "index.json").exists()
    bench.replace(PLANNED)
    bench.run()
    bench.require_right()


def test_a_file_that_was_only_touched_after_it_was_read_is_a_warning(bench: Bench) -> None:
    """Every byte of it had been read before, so that the dataset is right whatever was done to it."""
    bench.run(watch=at_the_end(lambda: bench.change(Way.STEALTHILY)))
    [warning] = bench.warnings()
    assert f"source files that were touched after they were read: 1, the first: {bench.file}" in warning
    bench.require_right()


def test_new_permissions_stop_a_run_that_is_not_done_with_the_file_and_the_next_start_ends_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(ChangedError, match="permissions, owner or links") as caught:
        while_reading(patch, bench, lambda: bench.file.chmod(0o600))
        bench.run()
    assert caught.value.next_step.startswith("start the same command again if its text is unchanged")
    bench.run()
    assert len(bench.warnings()) == 1
    bench.require_right()


# --- what is told


def test_a_message_has_dates_sizes_and_the_command_that_puts_the_time_back() -> None:
    was = SourceFile("/d/a b.jsonl", 60_000, f"mtime:{OLD_NS}")
    error = source_changed(was, SourceFile(was.uri, 58_200, f"mtime:{OLD_NS + 10**9}"))
    assert error.message == (
        "/d/a b.jsonl changed since the plan was made: was 60,000 bytes, modified 2001-09-09T01:46:40.000000123Z; "
        "is 58,200 bytes, modified 2001-09-09T01:46:41.000000123Z"
    )
    assert "touch -d 2001-09-09T01:46:40.000000123Z '/d/a b.jsonl'" in error.next_step
    assert "start the same command again" in error.next_step
    assert "another output.uri" in error.next_step


def test_a_message_tells_another_file_from_one_that_was_touched() -> None:
    was = SourceFile("/a", 1, f"mtime:{OLD_NS}", inode=5, ctime_ns=OLD_NS)
    touched, other = replace(was, ctime_ns=OLD_NS + 1), replace(was, inode=6, ctime_ns=OLD_NS + 1)
    assert "it was written to, or its permissions, owner or links changed" in source_changed(was, touched).message
    assert "replaced by another file: its inode was 5, is 6" in source_changed(was, other).message
    assert "it no longer exists" in source_changed(was, None).message


def test_a_time_that_no_calendar_has_is_told_as_well() -> None:
    assert "s after 1970" in source_changed(SourceFile("/a", 1, f"mtime:{10**30}"), None).message


def test_files_that_were_touched_before_a_start_are_one_warning(bench: Bench) -> None:
    with pytest.raises(ChangedError):
        bench.run(watch=at_the_end(bench.other.unlink))
    bench.other.write_bytes(json_lines(sample_texts("b", 20)))
    os.utime(bench.other, ns=(OLD_NS, OLD_NS))
    bench.file.chmod(0o600)
    bench.run()
    [warning] = bench.warnings()
    assert "source files that were touched since the plan was made: 2, the first:" in warning
    assert str(bench.file) in warning
    assert "cp -p" in warning
    bench.require_right()


def test_a_start_whose_files_were_left_alone_warns_of_nothing(bench: Bench) -> None:
    with pytest.raises(ZeroDivisionError):
        bench.run(watch=at_the_end(lambda: 1 // 0))
    bench.run()
    assert bench.warnings() == []


@pytest.mark.parametrize("way", [Way.CUT, Way.IN_PLACE, Way.RENAME])
def test_plan_tells_of_a_source_that_changed_after_completion(way: Way, bench: Bench) -> None:
    bench.run()
    assert preview_run(bench.job(), 1, bench.events.append).there == "this run is complete: nothing would be done"
    assert bench.warnings() == []
    bench.change(way)
    there = preview_run(bench.job(), 1, bench.events.append).there
    [warning] = bench.warnings()
    assert str(bench.file) in warning
    assert "this run is complete" in there
    if way is not Way.RENAME:  # of the same size and modification time
        assert "changed since" in there
        assert "2001-09-09T01:46:40.000000123Z" in there
        assert "rerunToken" in warning


def test_plan_tells_of_a_source_that_is_gone_after_completion(bench: Bench) -> None:
    bench.run()
    shutil.rmtree(bench.file.parent)
    there = preview_run(bench.job(), 1, bench.events.append).there
    assert there.startswith("this run is complete: nothing would be done; changed since: ")
    assert f"{bench.file} changed since the plan was made" in there
    assert "it no longer exists" in there
    [warning] = bench.warnings()
    assert "The dataset holds the earlier content" in warning


# --- what is for ever


def test_a_file_that_was_damaged_while_it_was_read_has_no_verdict(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verdict would drop the file from every later start, also when it is whole again."""
    chance = np.random.default_rng(1)
    lines = json_lines([chance.bytes(500).hex() for _ in range(6_000)])
    packed = zstd_frames(lines, frames=4)
    bench.replace(packed)

    def damage() -> None:
        with bench.file.open("r+b") as file:
            file.seek(len(packed) // 2)
            file.write(bytes(len(packed) // 2))
        os.utime(bench.file, ns=(OLD_NS, OLD_NS))

    with monkeypatch.context() as patch, pytest.raises(ChangedError, match="SourceChanged"):
        while_reading(patch, bench, damage)
        bench.run()
    assert not list((bench.output / layout.VERDICTS).glob("*"))


def test_a_document_that_was_never_planned_has_no_verdict(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def change_and_die() -> None:
        bench.change(Way.STEALTHILY)
        raise KillsEngine(0, "killed by SIGSEGV")

    while_encoding(monkeypatch, bench, change_and_die)
    with pytest.raises(ChangedError, match="SourceChanged"):
        bench.run()
    assert not list((bench.output / layout.CRASH_VERDICTS).glob("*"))


def test_a_file_that_changes_while_the_plan_is_made_is_in_no_plan(bench: Bench) -> None:
    prepared = prepare(bench.job())
    bench.change(Way.STEALTHILY)
    with pytest.raises(ChangedError, match="SourceChanged") as caught:
        make_plan_of(prepared, 1)
    assert f"{bench.file} changed since it was listed" in caught.value.message


def test_a_file_that_changes_while_the_plan_is_looked_at_is_in_no_plan(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = planning.kind_of_source

    def look_and_change(*arguments: Any) -> FileKind | None:
        kind = look(*arguments)
        bench.change(Way.STEALTHILY)
        return kind

    monkeypatch.setattr(planning, "kind_of_source", look_and_change)
    with pytest.raises(ChangedError, match="changed since it was listed"):
        bench.run()
    assert not (bench.output / layout.PLAN).exists()


def test_a_decoder_is_not_taken_on_to_a_file_that_was_touched(tmp_path: Path) -> None:
    """Another run in this process may have left it, in the middle of what the file held then."""
    aside = SetAside()
    before = FileSlice(0, "/a", 9, "mtime:1", end=5, inode=1, ctime_ns=1)
    content = Content(io.BytesIO(zstd_frames(b"123456789")), Compression.ZSTD)
    aside.put(before, content)
    assert aside.take(replace(before, start=5, ctime_ns=2), 5) is None
    aside.put(before, content)
    assert aside.take(replace(before, start=5), 5) is content


# --- the plan


def test_a_plan_records_inodes_and_change_times(bench: Bench) -> None:
    plan = Plan.from_bytes(make_plan(bench.job(), 1).to_bytes(), "out")
    status = bench.file.stat()
    assert (plan.files[0].inode, plan.files[0].ctime_ns) == (status.st_ino, status.st_ctime_ns)


def test_inodes_and_change_times_are_in_no_key(bench: Bench) -> None:
    before = make_plan(bench.job(), 1)
    bench.replace(PLANNED)
    after = make_plan(bench.job(), 1)
    assert before.files[0].inode != after.files[0].inode
    assert (before.data_key, before.run_key, before.plan_id) == (after.data_key, after.run_key, after.plan_id)


def test_a_plan_without_them_is_read_and_resumed_without_a_warning(bench: Bench) -> None:
    """All plans were so once."""
    with pytest.raises(ZeroDivisionError):
        bench.run(watch=at_the_end(lambda: 1 // 0))
    store = LocalStore(bench.output)
    plan = read_plan(store)
    assert plan is not None
    old = replace(plan, files=tuple(replace(file, inode=0, ctime_ns=0) for file in plan.files)).to_bytes()
    assert b"file_inode" not in old[:2000]
    (bench.output / layout.PLAN).write_bytes(old)
    bench.run()
    assert bench.warnings() == []
    bench.require_right()


# --- readers


def slice_of(file: SourceFile) -> FileSlice:
    return FileSlice(0, file.uri, file.size, file.version, inode=file.inode, ctime_ns=file.ctime_ns)


@pytest.mark.parametrize("data", [b"01234567", b"0123456789ab"], ids=["cut", "longer"])
@pytest.mark.parametrize("size", [-1, 4, 100])
def test_an_end_that_is_not_the_planned_one_is_a_change(size: int, data: bytes, tmp_path: Path) -> None:
    """The status alone would not tell where a file system is slow to update it."""
    path = tmp_path / "a"
    path.write_bytes(data)
    _, stream = LocalSource().open(str(path))
    hold(stream, SourceFile(str(path), 10, "mtime:1"))
    with closing(stream), pytest.raises(ChangedError, match="SourceChanged"):
        while stream.read(size):
            pass


@pytest.mark.parametrize("data", [b"01234567", b"0123456789ab"], ids=["cut", "longer"])
def test_a_buffer_sees_that_end_as_well(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(data)
    _, stream = LocalSource().open(str(path))
    hold(stream, SourceFile(str(path), 10, "mtime:1"))
    assert isinstance(stream, io.RawIOBase)
    with io.BufferedReader(stream) as buffer, pytest.raises(ChangedError, match="SourceChanged"):
        buffer.read()


def test_a_stream_of_an_unchanged_file_is_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\ntwo\n")
    [file] = list_source((str(path),))
    stream = open_as_seen(file)
    assert isinstance(stream, io.RawIOBase)
    assert stream.seek(4) == stream.tell() == 4
    assert stream.read(-1) == b"two\n"
    assert stream.read(0) == b""
    require_unchanged(stream)
    stream.seek(0)
    with io.BufferedReader(stream) as lines:
        assert list(lines) == [b"one\n", b"two\n"]


def test_a_file_without_a_known_state_is_compared_by_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    [file] = list_source((str(path),))
    path.chmod(0o600)
    stream: ByteReader = open_unchanged(file.uri, file.size, file.version)
    assert stream.read(-1) == b"one"
    stream.close()


def test_an_inode_alone_is_no_change(tmp_path: Path) -> None:
    """FAT and mounted buckets number a file anew whenever they have forgotten it."""
    path = tmp_path / "a"
    path.write_bytes(b"one")
    [file] = list_source((str(path),))
    open_as_seen(replace(file, inode=file.inode + 1)).close()
    assert list(find_touched([replace(file, inode=file.inode + 1)], stat_again)) == []


def test_a_slice_is_looked_at_after_its_last_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(json_lines(["one", "two"]))
    [file] = list_source((str(path),))
    options = ReadOptions(SourceFormat.JSONL, "text", None, 100)
    batches = read_documents(slice_of(file), options, lambda _: open_as_seen(file))
    assert next(batches).texts == ["one", "two"]
    path.chmod(0o600)
    with pytest.raises(ChangedError, match="changed while it was read"):
        next(batches)


def test_all_files_are_looked_at_again_in_order(tmp_path: Path) -> None:
    for number in range(1_200):
        (tmp_path / f"{number:04d}").write_bytes(b"x")
    files = list_source((str(tmp_path),))
    (tmp_path / "0003").unlink()
    (tmp_path / "0700").write_bytes(b"xx")
    (tmp_path / "1199").chmod(0o600)
    found = list(find_touched(files, stat_again))
    assert [Path(was.uri).name for was, _ in found] == ["0003", "0700", "1199"]
    assert found[0][1] is None
    assert found[1][1] is not None
    assert found[1][1].size == 2


def test_verify_takes_a_source_that_changes_meanwhile_for_no_fault_of_the_dataset(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.run()
    while_encoding(monkeypatch, bench, lambda: bench.change(Way.STEALTHILY))
    with pytest.raises(ChangedError, match="SourceChanged"):
        verify(str(bench.output), mode="full", processes=1)  # type: ignore[arg-type]
    assert json.loads((bench.output / "index.json").read_bytes())["conservation"]["files"] == {"Read": 2}


@pytest.mark.parametrize(
    ("way", "words"), [(Way.DELETE, "it no longer exists: it was deleted or moved"), (Way.RENAME, "replaced by")]
)
def test_a_file_that_is_deleted_or_replaced_while_it_is_read_is_told_as_that(
    way: Way, words: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_reading(monkeypatch, bench, lambda: bench.change(way))
    with pytest.raises(ChangedError, match=f"a.jsonl changed while it was read: .*{words}"):
        bench.run()


@pytest.mark.parametrize(
    ("take_away", "words"),
    [
        (lambda output: output.rename(output.with_name("moved")), "the output's folder {output} is missing"),
        (lambda output: shutil.rmtree(output / "_tokenization"), "files of this run in {output} are missing"),
    ],
    ids=["moved", "emptied"],
)
def test_an_output_that_is_taken_away_during_a_run_is_named(
    take_away: Callable[[Path], object], words: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_encoding(monkeypatch, bench, lambda: take_away(bench.output))
    with pytest.raises(TemporaryError) as caught:
        bench.run()
    assert words.format(output=bench.output) in caught.value.message
    assert "another program removed or moved them during the run" in caught.value.message
    assert caught.value.next_step.startswith("put it back and start the same command again, which continues the run")
