"""A shard of several files is there as a whole or is written again: through kills, damage, repair and removal."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

from support.corpus import json_lines, take_documents
from support.engine.inline import inline
from support.engine.two_files import Formats, job_of, register
from support.forks import exit_code_of_fork
from support.runs import difference, files_below, leftovers, read_index
from tokenization_worker import Options, open_dataset, run_job, verify
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.engine.task import Task
from tokenization_worker.errors import ChangedError, DataError
from tokenization_worker.events import Event, Finished, Warned
from tokenization_worker.formats.base import ByteSink
from tokenization_worker.formats.registry import FORMATS, fingerprint
from tokenization_worker.inspect.clean import clean_output
from tokenization_worker.inspect.show import show_documents
from tokenization_worker.inspect.status import read_status
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import Voided, place_files
from tokenization_worker.output.ledger.receipts import ShardReceipt
from tokenization_worker.output.record import dump_record, load_record
from tokenization_worker.output.tables import table_rows
from tokenization_worker.pipelines.tokenize.shard_builder import BuildTask
from tokenization_worker.storage.base import Entry
from tokenization_worker.storage.local.store import LocalStore, LocalUpload
from tokenization_worker.storage.open import open_store
from tokenization_worker.verification.facts import read_facts, read_table
from tokenization_worker.verification.report import Fault
from tokenization_worker.verification.shards.check import check_shard

pytestmark = [
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings"),
]

TWO = (Formats.TWO_FILES,)
MAIN, SIDE = "train/train_000001.tok", "train/train_000001.len"
SIDECAR = "_tokenization/documents/train/00000001"


class Bench:
    """A job of some seven shards of two files in `output`, over two source files."""

    def __init__(self, folder: Path, formats: Sequence[Formats] = TWO) -> None:
        self.source, self.output = folder / "src", folder / "out"
        self.formats = formats
        self.texts = take_documents(60_000)
        self.source.mkdir(parents=True)
        middle = len(self.texts) // 2
        (self.source / "a.jsonl").write_bytes(json_lines(self.texts[:middle]))
        (self.source / "b.jsonl").write_bytes(json_lines(self.texts[middle:]))

    def job(self, rerun: str = "") -> TokenizationJob:
        fields: dict[str, Any] = {"tokenizer": {"name": "bytes"}, "output": {"shards": {"tokens": 9000}}}
        return job_of(self.source, self.output, *self.formats, **fields, **({"rerunToken": rerun} if rerun else {}))

    def run(
        self, *, rerun: str = "", before: Callable[[Task], None] = lambda task: None, told: list[Event] | None = None
    ) -> Finished:
        watch = (told if told is not None else []).append
        return run_job(self.job(rerun), executor=inline(before), on_progress=watch)

    def stop(self, shards: int = 3) -> None:
        """Run it until so many shards are written."""
        built: list[Task] = []

        def count(task: Task) -> None:
            if isinstance(task, BuildTask):
                built.append(task)

        with pytest.raises(Stopped):
            run_job(self.job(), executor=inline(count), should_stop=lambda: len(built) > shards)

    def stamps(self) -> dict[str, tuple[int, int]]:
        """Of the shards' files: what changes when one is written."""
        found = {path: (self.output / path).stat() for path in files_below(self.output) if path.startswith("train/")}
        return {path: (status.st_ino, status.st_mtime_ns) for path, status in found.items()}

    def require_whole(self) -> None:
        assert [str(finding) for finding in verify(self.output, mode="full", processes=1).findings] == []
        assert [path for path in leftovers(self.output) if not path.startswith(("train/", layout.RERUNS))] == []
        tokens = np.frombuffer("".join(self.texts).encode(), np.uint8)
        found = open_dataset(self.output)["train"][:]
        assert np.array_equal(found[found < 256], tokens)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    register(monkeypatch)
    return Bench(tmp_path)


def rows_of(output: Path) -> list[dict[str, Any]]:
    return [row for _, row in table_rows(LocalStore(output), layout.SHARDS_TABLE)]


def receipt_of(output: Path, index: int) -> tuple[Path, dict[str, Any]]:
    path = output / layout.shard_receipt_path(0, "train", index)
    return path, load_record(path.read_bytes())


def test_a_whole_run_lists_every_file_everywhere(bench: Bench) -> None:
    assert not bench.run().already
    bench.require_whole()
    rows = rows_of(bench.output)
    assert len(rows) > 5
    for row in rows:
        stem = f"train/train_{row['index']:06d}"
        assert [(file["format"], file["path"]) for file in row["files"]] == [
            ("TwoFiles", f"{stem}.tok"),
            ("TwoFiles", f"{stem}.len"),
        ]
        assert {name: row[name] for name in ("path", "bytes", "crc32c", "sha256")} == {
            name: value for name, value in row["files"][0].items() if name != "format"
        }
        _, receipt = receipt_of(bench.output, row["index"])
        for file, written in zip(row["files"], receipt["files"], strict=True):
            data = (bench.output / file["path"]).read_bytes()
            assert file["bytes"] == len(data) == written["bytes"]
            assert file["crc32c"] == f"{google_crc32c.value(data):08x}" == f"{written['crc32c']:08x}"
    assert {path for path in files_below(bench.output) if path.startswith("train/")} == {
        file["path"] for row in rows for file in row["files"]
    }
    assert read_status(bench.output).phase == "Complete"


def test_a_shard_of_one_file_has_no_list_of_files(tmp_path: Path) -> None:
    bench = Bench(tmp_path, [Formats.NPY])
    bench.run()
    bench.require_whole()
    assert all("files" not in row for row in rows_of(bench.output))
    assert all("files" not in receipt_of(bench.output, row["index"])[1] for row in rows_of(bench.output))


def test_two_formats_are_written_from_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch)
    both = Bench(tmp_path / "both", [Formats.NPY, Formats.TWO_FILES])
    alone = Bench(tmp_path / "alone", [Formats.NPY])
    both.run()
    alone.run()
    assert [str(finding) for finding in verify(both.output, mode="full", processes=1).findings] == []
    assert difference(both.output / "npy/train", alone.output / "train") is None
    suffixes = [Path(file["path"]).suffix for file in rows_of(both.output)[0]["files"]]
    assert suffixes == [".npy", ".tok", ".len"]


def test_processes_write_the_same_files(bench: Bench, tmp_path: Path) -> None:
    bench.run()
    before = {path: (bench.output / path).read_bytes() for path in bench.stamps()}
    bench.output.rename(tmp_path / "first")
    run_job(bench.job(), options=Options(processes=2))
    assert {path: (bench.output / path).read_bytes() for path in bench.stamps()} == before


def kill_after(monkeypatch: pytest.MonkeyPatch, last: str) -> None:
    """This process is killed as soon as `last` has its name."""
    commit = LocalUpload.commit

    def commit_and_die(self: LocalUpload, metadata: Mapping[str, str] | None = None) -> Entry:
        entry = commit(self, metadata)
        if entry.path == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return entry

    monkeypatch.setattr(LocalUpload, "commit", commit_and_die)


def kill(bench: Bench, last: str) -> None:
    """Run the job in a fork that is killed as soon as `last` has its name."""

    def run_and_die() -> bool:
        with pytest.MonkeyPatch.context() as patch:
            kill_after(patch, last)
            bench.run()
        return False

    assert exit_code_of_fork(run_and_die) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("last", "there"),
    [(SIDECAR, set()), (SIDE, {SIDE}), (MAIN, {SIDE, MAIN})],
    ids=["before its files", "between its files", "before its receipt"],
)
def test_a_run_killed_while_it_writes_a_shard_goes_on(last: str, there: set[str], bench: Bench) -> None:
    kill(bench, last)
    found = files_below(bench.output)
    assert found & {SIDE, MAIN} == there
    assert layout.shard_receipt_path(0, "train", 1) not in found
    before = bench.stamps()
    bench.run()
    bench.require_whole()
    assert {path: bench.stamps()[path] for path in before} == before, "what was there was found equal, and stays"


@pytest.mark.parametrize("path", [SIDE, MAIN])
def test_what_a_killed_run_left_is_compared_and_never_taken_for_granted(path: str, bench: Bench) -> None:
    kill(bench, MAIN)
    data = bytearray((bench.output / path).read_bytes())
    data[-1] ^= 1
    (bench.output / path).write_bytes(data)
    with pytest.raises(ChangedError, match=rf"OutputConflict: {bench.output}/{path} exists and differs from the file"):
        bench.run()
    assert (bench.output / path).read_bytes() == data


def damage_in_place(path: Path) -> None:
    """Flip a bit, as a disk does: the file keeps its name, size and times."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "gone": lambda path: path.unlink(),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "flipped": lambda path: path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1])),
    "changed": damage_in_place,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("path", [MAIN, SIDE])
def test_a_resume_writes_the_damaged_shard_again_and_no_other(path: str, damage: str, bench: Bench) -> None:
    bench.stop()
    before = bench.stamps()
    content = (bench.output / path).read_bytes()
    DAMAGE[damage](bench.output / path)
    told: list[Event] = []
    built: list[Task] = []
    bench.run(before=built.append, told=told)
    bench.require_whole()
    assert (bench.output / path).read_bytes() == content
    how = "shards whose bytes changed after" if damage == "changed" else "deleted or changed since an earlier start"
    assert any(how in event.message for event in told if isinstance(event, Warned))
    again = [task for task in built if isinstance(task, BuildTask) and task.repair]
    assert [task.shard.name.index for task in again] == [1]
    kept = {name: stamp for name, stamp in before.items() if name != path}
    assert {name: bench.stamps()[name] for name in kept} == kept


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped"])
@pytest.mark.parametrize("path", [MAIN, SIDE])
def test_a_complete_dataset_is_repaired_shard_by_shard(path: str, damage: str, bench: Bench) -> None:
    bench.run()
    before, content = bench.stamps(), (bench.output / path).read_bytes()
    DAMAGE[damage](bench.output / path)
    assert bench.run(rerun="again").rebuilt == 1
    bench.require_whole()
    assert (bench.output / path).read_bytes() == content
    kept = {name: stamp for name, stamp in before.items() if name != path}
    assert {name: bench.stamps()[name] for name in kept} == kept


@pytest.mark.parametrize(
    ("path", "damage", "fault"),
    [
        (MAIN, "gone", Fault.SHARD_MISSING),
        (SIDE, "gone", Fault.SHARD_MISSING),
        (MAIN, "cut", Fault.SHARD_SIZE),
        (SIDE, "cut", Fault.SHARD_SIZE),
        (MAIN, "changed", Fault.SHARD_CHECKSUM),
        (SIDE, "changed", Fault.SHARD_CHECKSUM),
    ],
)
def test_verify_names_the_damaged_file(path: str, damage: str, fault: Fault, bench: Bench) -> None:
    bench.run()
    DAMAGE[damage](bench.output / path)
    findings = verify(bench.output, mode="checksums", processes=1).findings
    assert (fault, path) in {(finding.fault, finding.path) for finding in findings}
    assert {finding.path for finding in findings} <= {path, layout.INDEX}


def test_verify_compares_a_side_file_with_the_sidecar(bench: Bench) -> None:
    """Also where its checksums fit: a program that writes other lengths sums them, too."""
    bench.run()
    store = open_store(str(bench.output))
    facts = read_facts(store, read_index(bench.output), read_table(store, layout.SHARDS_TABLE))
    claim = facts.streams[0][1]
    assert check_shard(facts, claim).findings == ()
    damage_in_place(bench.output / SIDE)
    side = check_shard(facts, claim).files[1]
    [finding] = check_shard(facts, replace(claim, files=(claim.files[0], side))).findings
    assert (finding.fault, finding.path) == (Fault.SHARD_HEADER, SIDE)


@pytest.mark.parametrize("path", [MAIN, SIDE])
def test_status_names_a_file_that_is_gone(path: str, bench: Bench) -> None:
    bench.run()
    (bench.output / path).unlink()
    state = read_status(bench.output)
    assert (state.phase, path in state.message) == ("Damaged", True)


@pytest.mark.parametrize("last", [SIDE, MAIN, layout.shard_receipt_path(0, "train", 1)])
def test_clean_removes_every_file(last: str, bench: Bench) -> None:
    kill(bench, last)
    assert clean_output(bench.output, dry_run=False).stays == ()
    assert files_below(bench.output) == set()


@pytest.mark.parametrize("path", [MAIN, SIDE])
def test_clean_removes_a_damaged_file_that_a_receipt_names(path: str, bench: Bench) -> None:
    bench.stop()
    (bench.output / path).write_bytes(b"no longer a shard's")
    assert clean_output(bench.output, dry_run=False).stays == ()
    assert files_below(bench.output) == set()


def test_clean_leaves_a_foreign_file_of_a_side_files_name(bench: Bench) -> None:
    bench.stop()
    next((bench.output / "_tokenization/ledger/0/shards/train").iterdir()).unlink()
    foreign = bench.output / "train/train_000077.len"
    foreign.write_bytes(b"lengths of mine")
    [(path, reason)] = clean_output(bench.output, dry_run=False).stays
    assert path == "train/train_000077.len"
    assert "it does not begin with the header of such a file" in reason
    assert files_below(bench.output) == {path}


def test_a_foreign_side_file_is_refused_before_a_run_and_before_its_index(bench: Bench) -> None:
    foreign = bench.output / "train/train_000077.len"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"lengths of mine")
    with pytest.raises(ChangedError, match=r"OutputConflict: .*train_000077\.len has a name"):
        bench.run()
    foreign.unlink()
    bench.stop()
    foreign.write_bytes(b"lengths of mine")
    with pytest.raises(ChangedError, match=r"OutputConflict: .*train_000077\.len has a name"):
        bench.run()
    assert not (bench.output / layout.INDEX).exists()


def test_verify_finds_a_file_more(bench: Bench) -> None:
    bench.run()
    (bench.output / "train/train_000077.len").write_bytes(b"")
    [finding] = verify(bench.output, mode="checksums", processes=1).findings
    assert (finding.fault, finding.path) == (Fault.UNEXPECTED_FILE, "train/train_000077.len")


def test_documents_are_shown_and_located(bench: Bench) -> None:
    bench.run()
    assert bench.texts[1] in [document.text for document in show_documents(bench.output, "train", 0, 3)]
    assert open_dataset(bench.output).locate("train", 9001).path == MAIN


def test_the_reader_of_a_format_names_what_is_damaged(bench: Bench) -> None:
    bench.run()
    data = (bench.output / MAIN).read_bytes()
    (bench.output / MAIN).write_bytes(b"other" + data[5:])
    with pytest.raises(DataError, match=rf"ShardDamaged: {bench.output}/{MAIN} has another header"):
        open_dataset(bench.output)["train"].tokens(9000, 9001)


RECORDS: dict[str, Callable[[dict[str, Any]], object]] = {
    "no main file": lambda record: record["files"].pop(0),
    "an only file": lambda record: record["files"].pop(),
    "another main file": lambda record: record.update(bytes=1),
    "a size below 0": lambda record: record["files"][1].update(bytes=-1),
    "no digest": lambda record: record["files"][1].update(sha256="no digest"),
    "a side file elsewhere": lambda record: record["files"][1].update(path="train/train_000002.len"),
}


@pytest.mark.parametrize("change", RECORDS.values(), ids=RECORDS)
def test_a_receipt_whose_files_cannot_be_is_refused(change: Callable[[dict[str, Any]], object], bench: Bench) -> None:
    bench.stop()
    path, record = receipt_of(bench.output, 1)
    change(record)
    path.write_bytes(dump_record(record))
    with pytest.raises(
        DataError, match=r"RecordCorrupt: .*shards/train/00000001\.json has the right checksum, but this"
    ):
        bench.run()


def test_receipts_that_differ_in_a_side_file_disagree(bench: Bench) -> None:
    bench.stop()
    _, record = receipt_of(bench.output, 1)
    mine = ShardReceipt.from_dict(record)
    record["files"][1]["sha256"] = "0" * 64
    assert mine.disagreement(mine) is None
    assert "train_000001.len" in (mine.disagreement(ShardReceipt.from_dict(record)) or "")


class Placing:
    """Places `main` and `side`, and notes in which order they appear."""

    def __init__(self, folder: Path) -> None:
        self.store = LocalStore(folder)
        self.writes = 0
        self.asked: list[str] = []

    def write(self, sinks: Sequence[ByteSink]) -> None:
        self.writes += 1
        for sink, data in zip(sinks, (b"main", b"side"), strict=True):
            sink.write(data)

    def is_same(self, number: int, entry: Entry) -> bool:
        return self.store.read(entry.path) == (b"main", b"side")[number]

    def place(self, require_current: Callable[[], None] = lambda: None) -> tuple[Entry, ...]:
        return place_files(
            self.store,
            ("main", "side"),
            self.write,
            is_same=self.is_same,
            allow_replace=self.asked.append,
            require_current=require_current,
        )

    def content(self) -> dict[str, bytes]:
        return {entry.path: self.store.read(entry.path) for entry in self.store.list()}


WHOLE = {"main": b"main", "side": b"side"}


@pytest.mark.parametrize("other", [[], ["side"], ["main", "side"]], ids=["both new", "side replaced", "both replaced"])
def test_the_main_file_comes_last(other: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    commit = LocalUpload.commit

    def note(self: LocalUpload, metadata: Mapping[str, str] | None = None) -> Entry:
        entry = commit(self, metadata)
        order.append(entry.path)
        return entry

    monkeypatch.setattr(LocalUpload, "commit", note)
    placing = Placing(tmp_path)
    for path in other:
        (tmp_path / path).write_bytes(b"else")
    assert [entry.path for entry in placing.place()] == ["main", "side"]
    assert order == ["side", "main"]


@pytest.mark.parametrize("other", ["main", "side"])
def test_one_file_that_differs_is_replaced_and_the_other_kept(other: str, tmp_path: Path) -> None:
    placing = Placing(tmp_path)
    (tmp_path / other).write_bytes(b"else")
    placing.place()
    assert placing.content() == WHOLE
    assert (placing.asked, placing.writes) == ([other], 2)
    before = {path: (tmp_path / path).stat().st_ino for path in WHOLE}
    placing.place()
    assert {path: (tmp_path / path).stat().st_ino for path in WHOLE} == before
    assert placing.asked == [other]


@pytest.mark.parametrize("there", [[], ["side"]], ids=["both are new", "one was there"])
def test_a_voided_writer_takes_back_all_that_it_made_and_nothing_else(there: list[str], tmp_path: Path) -> None:
    placing = Placing(tmp_path)
    for path in there:
        (tmp_path / path).write_bytes(WHOLE[path])
    looks: list[int] = []

    def voided_after_the_first_look() -> None:
        looks.append(1)
        if len(looks) > 1:
            raise Voided("EngineVoided", "it was", next_step="")

    with pytest.raises(Voided):
        placing.place(voided_after_the_first_look)
    assert placing.content() == {path: WHOLE[path] for path in there}


def test_a_writer_that_may_not_replace_the_main_file_when_it_is_voided_leaves_no_side_file(tmp_path: Path) -> None:
    placing = Placing(tmp_path)
    (tmp_path / "main").write_bytes(b"else")

    def refuse(path: str) -> None:
        raise Voided("EngineVoided", f"{path} is another's", next_step="")

    with pytest.raises(Voided, match="main is another's"):
        place_files(placing.store, ("main", "side"), placing.write, is_same=placing.is_same, allow_replace=refuse)
    assert placing.content() == {"main": b"else"}


def test_formats_write_the_bytes_that_they_always_have() -> None:
    ours = [name for name, each in FORMATS.items() if each.traits.library is None]
    assert {name: fingerprint(name) for name in ours} == {
        "Npy": "d44a889b06ed39bc984325d9f45a6ab62001abcd249b61455b0bfb7d0f8c8948",
        "Raw": "368480a7d0d5e5327cd45aace47a8e127f8ae985df30ff920074eae136ec6c3e",
        "LlmC": "343a36749fa84ffc024b7005f77da02759282a590cdb94abd34edbb7fe98d0a5",
        "Megatron": "dddfe0a1dde21b44413c45f965f63530fcf1e414faf513ad2779e67887e41825",
    }


def test_a_receipt_that_is_read_is_written_as_it_was(bench: Bench) -> None:
    bench.run()
    path, record = receipt_of(bench.output, 0)
    assert dump_record(ShardReceipt.from_dict(record).to_dict()) == path.read_bytes()
