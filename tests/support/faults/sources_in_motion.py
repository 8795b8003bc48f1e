"""Change the file that a run reads, in every way and at every moment, and look at what comes of it.

    PYTHONPATH=tests python tests/support/faults/sources_in_motion.py

A cell of the table is a run of the installed `tokjob` that stands still at a moment (`gated`), a change, and what the
run does then. Either it stops with `SourceChanged`, which names the file, and commits nothing; or every byte had been
read before the change, and the dataset is the undisturbed run's. After a stop the planned file is put back and the same
command ends the run: its dataset, too, is the undisturbed run's. What is right where is said by `expected_of`.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import count, product
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from support.places import PROGRAMS
from support.runs import TOKJOB, Running, difference, kill_all, leftovers, read_index, run_command
from support.stores.gcs_emulator import make_bucket, serve_emulator
from tokenization_worker.output.plan_file import read_plan
from tokenization_worker.storage.local.store import LocalStore

GATED = PROGRAMS / "gated"
TIMEOUT_S = 120
POLL_S = 0.005


class Way(StrEnum):
    """How the file is changed. `STEALTHILY`: only the change time tells, which nobody can set. An object cannot be
    written in place: another one gets its name."""

    CUT = "cut"
    APPEND = "appended to"
    IN_PLACE = "written in place"
    STEALTHILY = "written in place, times put back"
    RENAME = "replaced, same size and times"
    DELETE = "deleted"


class Moment(StrEnum):
    FIRST_READ = "before the first read"
    FIRST_RANGE = "in the first range"
    BETWEEN = "between two ranges"
    LAST_RANGE = "in the last range"
    INDEX = "before the index"
    AFTER = "after the index"


class Format(StrEnum):
    JSONL = "jsonl"
    GZIP = "jsonl.gz"
    PARQUET = "parquet"


class Place(StrEnum):
    LOCAL = "local"
    GCS = "gs://"


class Cell(NamedTuple):
    place: Place
    format: Format
    way: Way
    moment: Moment


class Outcome(StrEnum):
    STOPPED = "stopped"
    COMMITTED = "right"
    TOLD = "told"


MEANING = {
    Outcome.STOPPED: "exit 3, SourceChanged names the file, nothing is committed; put back, the same command gives the "
    "undisturbed run's dataset",
    Outcome.COMMITTED: "every byte had been read before the change, and of the planned file: the dataset is the "
    "undisturbed run's (a local file: with a warning)",
    Outcome.TOLD: "the dataset was complete before: it stays, the same command says so, and `tokjob plan` tells of the "
    "change",
}


def expected_of(cell: Cell) -> Outcome:
    """What is right.

    Before the index a local file must be there as it was listed. One that has only a new change time cannot be told
    from one with new permissions, so it stops a run as long as something is to be read of it, and is a warning
    afterwards. An object is read by its version, of which nobody can change a byte: it is not looked for again.
    """
    if cell.moment is Moment.AFTER:
        return Outcome.TOLD
    if cell.moment is Moment.INDEX and (cell.place is Place.GCS or cell.way is Way.STEALTHILY):
        return Outcome.COMMITTED
    return Outcome.STOPPED


def cells_of(places: Iterable[Place] = Place) -> list[Cell]:
    """The whole table. An object has no times to put back, and is never written in place."""
    every = (Cell(*values) for values in product(places, Format, Way, Moment))
    return [cell for cell in every if not (cell.place is Place.GCS and cell.way is Way.STEALTHILY)]


class Variants(NamedTuple):
    """A file's content, and what it may become. `other` is as large, and as valid."""

    planned: bytes
    shorter: bytes
    longer: bytes
    other: bytes


def make_variants(format: Format) -> Variants:
    """About a megabyte, of several ranges; each variant a whole file, of which a reader has nothing to complain."""
    chance = random.Random(3)
    texts = ["".join(chance.choices("abcdefgh", k=1500)) for _ in range(700)]
    others = [text.translate(str.maketrans("abcd", "dcba")) for text in texts]
    write = {Format.JSONL: _json_lines, Format.GZIP: _gzip, Format.PARQUET: _parquet}[format]
    planned, other = write(texts), write(others)
    if format is Format.GZIP:  # zero bytes after a member are padding
        while len(other) > len(planned):
            others.pop()
            other = write(others)
        other += bytes(len(planned) - len(other))
    assert len(other) == len(planned)
    assert other != planned
    return Variants(planned, write(texts[:650]), write([*texts, "more"]), other)


def _json_lines(texts: Sequence[str]) -> bytes:
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


def _gzip(texts: Sequence[str]) -> bytes:
    return gzip.compress(_json_lines(texts), 6, mtime=0)


def _parquet(texts: Sequence[str]) -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), target, row_group_size=100, compression="none", use_dictionary=False)
    return target.getvalue()


class Victim(Protocol):
    """The file that is changed."""

    uri: str

    def change(self, way: Way) -> None: ...
    def put_back(self) -> None: ...


class LocalVictim:
    def __init__(self, folder: Path, format: Format, variants: Variants) -> None:
        folder.mkdir(parents=True)
        self._path = folder / f"victim.{format}"
        self._variants = variants
        self.uri = str(self._path)
        self._path.write_bytes(variants.planned)
        os.utime(self._path, ns=(10**18, 10**18 + 123))  # long ago: a clock that ticks slowly hides nothing
        self._times = (10**18, 10**18 + 123)

    def change(self, way: Way) -> None:
        match way:
            case Way.CUT:
                self._write(self._variants.shorter)
                os.truncate(self._path, len(self._variants.shorter))
            case Way.APPEND:
                self._write(self._variants.longer)
            case Way.IN_PLACE:
                self._write(self._variants.other)
            case Way.STEALTHILY:
                self._write(self._variants.other)
                os.utime(self._path, ns=self._times)
            case Way.RENAME:
                self._replace(self._variants.other)
            case Way.DELETE:
                self._path.unlink()

    def _write(self, data: bytes) -> None:
        with self._path.open("r+b") as file:
            file.write(data)

    def _replace(self, data: bytes) -> None:
        beside = self._path.with_name(".beside")
        beside.write_bytes(data)
        os.utime(beside, ns=self._times)
        beside.rename(self._path)

    def put_back(self) -> None:
        """As `cp -p` does from a copy: another inode, the same size and times."""
        self._replace(self._variants.planned)


class GcsVictim:
    def __init__(self, bucket: str, name: str, format: Format, variants: Variants) -> None:
        from google.cloud import storage

        self._client = storage.Client.create_anonymous_client()
        self._bucket = self._client.bucket(bucket)
        self._name = f"{name}/victim.{format}"
        self._variants = variants
        self.uri = f"gs://{bucket}/{self._name}"
        self._upload(variants.planned)

    def change(self, way: Way) -> None:
        match way:
            case Way.CUT:
                self._upload(self._variants.shorter)
            case Way.APPEND:
                self._upload(self._variants.longer)
            case Way.RENAME:
                beside = self._bucket.blob(f"{self._name}.beside")
                beside.upload_from_string(self._variants.other)
                self._bucket.copy_blob(beside, self._bucket, self._name)
                beside.delete()
            case Way.DELETE:
                self._bucket.blob(self._name).delete()
            case _:
                self._upload(self._variants.other)

    def _upload(self, data: bytes) -> None:
        self._bucket.blob(self._name).upload_from_string(data)

    def put_back(self) -> None:
        self._upload(self._variants.planned)


class MotionFailure(AssertionError):
    """A cell is not what was promised."""


@dataclass(frozen=True)
class Motion:
    """Runs cells below `folder`.

    `expected`, `last_start`: of each format the undisturbed dataset, and where its last range begins; `host`: of an
    emulator.
    """

    folder: Path
    variants: dict[Format, Variants]
    expected: dict[Format, Path]
    last_start: dict[Format, int]
    host: str
    bucket: str

    def run(self, cell: Cell, number: int) -> Outcome:
        """One cell; raises `MotionFailure`."""
        folder = self.folder / f"{number:03d}"
        try:
            self._run(cell, folder, number)
        except MotionFailure as failure:
            raise MotionFailure(f"{', '.join(cell)}: {failure} (kept: {folder})") from failure
        shutil.rmtree(folder)
        return expected_of(cell)

    def _run(self, cell: Cell, folder: Path, number: int) -> None:
        victim = self._make_victim(cell, folder, number)
        output = folder / "out"
        arguments = command(victim.uri, output)
        code, said = self._run_and_change(cell, arguments, folder, victim)
        if cell.moment is Moment.AFTER:
            _require(code == 0, said)
            self._require_right(cell, output)
            again = self._tokjob(arguments)
            _require(again[0] == 0 and "complete" in again[1], again)
            plan = self._tokjob([arguments[0], "plan", *arguments[2:-2]])  # without --processes and its number
            told = "touched" if cell.way in (Way.STEALTHILY, Way.RENAME) and cell.place is Place.LOCAL else "changed"
            _require(victim.uri in plan[1] and told in plan[1], plan)
            _require(plan[0] == 0, plan)
            self._require_right(cell, output)
            return
        if expected_of(cell) is Outcome.COMMITTED:
            _require(code == 0 and ("touched after they were read" in said) == (cell.place is Place.LOCAL), said)
            self._require_right(cell, output)
            return
        _require(code == 3 and "SourceChanged" in said and victim.uri in said, f"exit {code}: {said}")
        _require(not (output / "index.json").exists(), "an index was written")
        victim.put_back()
        code, said = self._tokjob(arguments)
        _require(code == 0, f"the planned file is back, and: exit {code}: {said}")
        self._require_right(cell, output)

    def _run_and_change(self, cell: Cell, arguments: list[str], folder: Path, victim: Victim) -> tuple[int, str]:
        """Start the run, change the file at its moment, let it end: its exit code and what it said."""
        if cell.moment is Moment.AFTER:
            ended = self._tokjob(arguments)
            victim.change(cell.way)
            return ended
        gate = folder / "gate"
        gate.mkdir()
        running = Running(
            arguments,
            folder / "log",
            PYTHONPATH=os.pathsep.join(filter(None, [str(GATED), os.environ.get("PYTHONPATH", "")])),
            GATE_FOLDER=str(gate),
            GATE_MOMENT=str(cell.moment),
            GATE_LAST_START=str(self.last_start[cell.format]),
            STORAGE_EMULATOR_HOST=self.host,
        )
        deadline = time.monotonic() + TIMEOUT_S
        while not (gate / "reached").exists():
            _require(not running.has_ended, f"it ended before its moment: {running.errors}")
            _require(time.monotonic() < deadline, f"no such moment in {TIMEOUT_S} s")
            time.sleep(POLL_S)
        victim.change(cell.way)
        (gate / "go").touch()
        code = running.wait(TIMEOUT_S)
        return code, (folder / "log.out").read_text() + running.errors

    def _tokjob(self, arguments: Sequence[str]) -> tuple[int, str]:
        done = run_command(arguments, timeout_s=TIMEOUT_S, STORAGE_EMULATOR_HOST=self.host)
        return done.returncode, done.stdout + done.stderr

    def _require_right(self, cell: Cell, output: Path) -> None:
        expected = self.expected[cell.format]
        problem = difference(output, expected)
        _require(problem is None, problem)
        _require(read_index(output)["digest"] == read_index(expected)["digest"], "the digests differ")
        _require(not leftovers(output), f"left behind: {leftovers(output)[:5]}")

    def _make_victim(self, cell: Cell, folder: Path, number: int) -> Victim:
        variants = self.variants[cell.format]
        if cell.place is Place.LOCAL:
            return LocalVictim(folder / "source", cell.format, variants)
        folder.mkdir()
        return GcsVictim(self.bucket, str(number), cell.format, variants)


def _require(holds: bool, said: object) -> None:
    if not holds:
        raise MotionFailure(str(said))


def command(source: str, output: Path) -> list[str]:
    """A run of several ranges and shards, in one process: so its moments are the same each time."""
    fields = ["--source", source, "--tokenizer", "bytes", "--output", str(output)]
    return [
        *(str(TOKJOB), "run", *fields, "--output.shards.tokens", "100000", "--rangeBytes", "192Ki"),
        *("--processes", "1"),
    ]


@contextmanager
def prepare_motion(folder: Path) -> Iterator[Motion]:
    """Sources, undisturbed datasets and an emulator, until the end of the block."""
    variants = {format: make_variants(format) for format in Format}
    expected = {format: folder / "expected" / format for format in Format}
    for format in Format:
        victim = LocalVictim(folder / "undisturbed" / format, format, variants[format])
        done = run_command(command(victim.uri, expected[format]))
        _require(done.returncode == 0, done.stderr)
    last_start = {format: _last_start(expected[format]) for format in Format}
    with serve_emulator() as host:
        before = os.environ.get("STORAGE_EMULATOR_HOST")
        os.environ["STORAGE_EMULATOR_HOST"] = host
        try:
            yield Motion(folder, variants, expected, last_start, host, make_bucket(host))
        finally:
            kill_all()
            if before is None:
                del os.environ["STORAGE_EMULATOR_HOST"]
            else:
                os.environ["STORAGE_EMULATOR_HOST"] = before


def _last_start(output: Path) -> int:
    plan = read_plan(LocalStore(output))
    assert plan is not None
    _require(plan.n_ranges > 2, f"{plan.n_ranges} ranges")
    return plan.slices(plan.n_ranges - 1)[-1].start


def table_of(place: Place, outcomes: dict[Cell, str]) -> list[str]:
    """A line for each format and way, a column for each moment."""
    lines = [f"{place:<45}" + "".join(f"{moment:<24}" for moment in Moment)]
    for format, way in product(Format, Way):
        row = [outcomes.get(Cell(place, format, way, moment)) for moment in Moment]
        if any(row):
            lines.append(f"{format:<10} {way:<34}" + "".join(f"{word or '':<24}" for word in row))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--at-once", type=int, default=2, help="cells that run at once")
    parser.add_argument("--only", default="", help="only cells with these words in their names, separated by commas")
    options = parser.parse_args()
    wanted = [word.strip() for word in options.only.split(",") if word.strip()]
    cells = [cell for cell in cells_of() if all(word in ", ".join(cell) for word in wanted)]
    folder = Path(tempfile.mkdtemp(prefix="motion-"))
    started = time.monotonic()
    outcomes: dict[Cell, str] = {}
    failures: list[str] = []
    with prepare_motion(folder) as motion, ThreadPoolExecutor(options.at_once) as pool:

        def run(cell: Cell, number: int) -> None:
            try:
                outcomes[cell] = motion.run(cell, number)
            except MotionFailure as failure:
                outcomes[cell] = "WRONG"
                failures.append(str(failure))

        list(pool.map(run, cells, count()))
    for place in Place:
        if any(cell.place is place for cell in cells):
            print("\n".join(table_of(place, outcomes)) + "\n")
    for outcome in Outcome:
        print(f"{outcome}: {MEANING[outcome]}")
    print(f"{len(cells) - len(failures)} of {len(cells)} cells are right, in {time.monotonic() - started:.0f} s")
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    if not failures:
        shutil.rmtree(folder)
    return 1 if failures or not cells else 0


if __name__ == "__main__":
    sys.exit(main())
