"""Kill a run with SIGKILL again and again, at random moments and at chosen ones, and compare what comes of it.

    PYTHONPATH=tests python tests/support/faults/chaos.py --kills 200 --seed 1

A dataset is started, killed, started again with other options, killed again, until a start runs to its end; then
its bytes are compared with those of an uninterrupted run, it is deleted, and the next dataset begins. Moments are
chosen by watching the output's files from outside; the program under test has no hooks and is the installed one, forked
from a process that has imported it (`forked_commands`). Every kill is examined afterwards: what it left on the disk
says where it really hit.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from support.corpus import BAD_LINES, Corpus, CorpusWriter, take_documents
from support.runs import Running, command, difference, files_below, kill_all, leftovers, make_job, read_index

SHARD_TOKENS = 600_000
LEADING = [{"name": "test", "shards": 2}, {"name": "train"}]
FLAT: dict[str, Any] = {"shards": {"tokens": SHARD_TOKENS}, "splits": LEADING}
ROWS: dict[str, Any] = {
    "formats": ["Npy", "Raw", "LlmC", "Megatron"],
    "sequence": {"length": 2049, "scope": "File"},
    "shards": {"sequences": SHARD_TOKENS // 2049},
    "splits": LEADING,
}
LAYOUTS = {
    "flat": FLAT,
    "rows": ROWS,
    "packed-rows": {**ROWS, "sequence": {"length": 2049, "packing": "BestFit"}, "shards": {"tokens": SHARD_TOKENS}},
    "shuffle": {**FLAT, "shuffle": {"seed": 0}},
    "shuffled-packed-rows": {
        **ROWS,
        "sequence": {"length": 2049, "packing": "BestFit"},
        "shuffle": {"seed": 0},
        "splits": [{"name": "test", "share": "20%"}, {"name": "train"}],
    },
    "shuffled-rows": {**ROWS, "shuffle": {"seed": 0}, "splits": [{"name": "test", "share": "20%"}, {"name": "train"}]},
}
"""What the output of a run is: one run of tokens in one format, or rows in four formats, or either in another order."""

OWN = "_tokenization"
POLL_S = 0.0002
TIMEOUT_S = 120


class Aim(StrEnum):
    """When to kill, and what must be on the disk afterwards for the kill to have hit."""

    RANDOM = "at a random moment"
    SEGMENT = "after a segment, before its receipt"
    RECEIPT = "after a range's receipt, before the driver has told"
    SCATTER = "after a scattered object, before its receipt"
    SHARD = "inside a shard's write"
    SEAL = "after the seal, before the index"
    INDEX = "between index and clean-up"


EARLY = "elsewhere: before any task was under way"
WORKING = "elsewhere: while tasks were under way"

AIMED = (Aim.SEGMENT, Aim.RECEIPT, Aim.SHARD, Aim.INDEX, Aim.SEAL)


def aims_of(*, has_shuffle: bool) -> tuple[Aim, ...]:
    """The moments that a run has."""
    return (*AIMED, Aim.SCATTER) if has_shuffle else AIMED


class ChaosFailure(AssertionError):
    """A dataset or a restart is not what was promised; the folder is kept."""


def make_corpus(folder: Path, size: float = 1.0) -> Corpus:
    """Text that yields many tokens a byte, so that shards are large for the time that a run takes.

    Every format is there, unusable lines, a packed file of several ranges, and one that is damaged at its end.
    """
    chance = random.Random(7)
    numbers = [" ".join(map(str, chance.choices(range(10), k=chance.randrange(200, 20_000)))) for _ in range(200)]
    digits = int(len(numbers) * size)
    corpus = CorpusWriter(folder)
    corpus.jsonl(numbers[: digits // 2])
    corpus.jsonl(take_documents(int(400_000 * size)), pack="zstd")
    corpus.truncated_zstd(numbers[: digits // 8])
    corpus.unusable_lines(take_documents(int(300_000 * size), first=900), BAD_LINES)
    corpus.parquet(numbers[digits // 2 : digits * 3 // 4], rows_per_group=5)
    for text in take_documents(int(100_000 * size), first=1300):
        corpus.text(text)
    corpus.jsonl(numbers[digits * 3 // 4 : digits], blank_lines=True, pack="zstd")
    return corpus.finish()


@dataclass(frozen=True)
class How:
    """The options of one start; all of them may change from start to start."""

    processes: int
    range_bytes: str
    engine: str
    max_quarantined: str
    max_corrupt_files: str

    @property
    def is_enough(self) -> bool:
        """Whether the limits allow what the corpus holds."""
        return self.max_quarantined != "0" and self.max_corrupt_files != "0"


def choose_how(chance: random.Random, *, engine: str) -> How:
    generous = chance.random() > 0.12
    return How(
        processes=chance.choice([1, 2, 2, 3, 4]),
        range_bytes=chance.choice(["64Ki", "96Ki", "150Ki", "256Ki"]),
        engine=engine,
        max_quarantined=chance.choice(["7", "5%", "100%", "1000"] if generous else ["0", "50"]),
        max_corrupt_files=chance.choice(["1", "3", "50%"] if generous else ["0", "1"]),
    )


class Output:
    """What can be seen of a run from outside: names and sizes of files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ledger = folder / OWN / "ledger" / "0"

    def segments(self) -> set[str]:
        return _names(self._ledger / "segments")

    def inode_of_segment(self, name: str) -> int:
        return (self._ledger / "segments" / name).stat().st_ino

    def receipts(self) -> set[str]:
        return {name.removesuffix(".json") for name in _names(self._ledger / "ranges")}

    def shard_receipts(self) -> set[str]:
        folder = self._ledger / "shards"
        return {f"{split}/{name.removesuffix('.json')}" for split in _names(folder) for name in _names(folder / split)}

    def scattered(self) -> set[str]:
        """Scattered objects, by stream and window."""
        return self._by_folder("scattered")

    def scatter_receipts(self) -> set[str]:
        return {name.removesuffix(".json") for name in self._by_folder("scatters")}

    def _by_folder(self, kind: str) -> set[str]:
        folder = self._ledger / kind
        return {f"{stream}/{name}" for stream in _names(folder) for name in _names(folder / stream)}

    def has_index(self) -> bool:
        return (self.folder / "index.json").exists()

    def has_seal(self) -> bool:
        return (self.folder / OWN / "epochs" / "0001.json").exists()

    def writers(self) -> set[str]:
        """Folders of temporary files, one a process, dead or alive; each has a lock beside it."""
        names = _names(self.folder / OWN / "tmp")
        return {name for name in names if f"{name}.lock" in names}

    def temporary(self) -> list[Temporary]:
        """Temporary files of all writers, dead or alive."""
        found = []
        for writer in self.writers():
            folder = self.folder / OWN / "tmp" / writer
            for name in _names(folder):
                try:
                    with (folder / name).open("rb") as file:
                        status = os.fstat(file.fileno())
                        is_placed = status.st_nlink > 1
                        found.append(
                            Temporary(f"{writer}/{name}", status.st_ino, status.st_size, is_placed, file.read(8))
                        )
                except OSError:
                    continue  # it has just become an object
        return found


@dataclass(frozen=True)
class Temporary:
    """A file that is not yet, or was until now, on its way to be an object; `is_placed`: it has its name already."""

    name: str
    inode: int
    size: int
    is_placed: bool
    head: bytes

    @property
    def writer(self) -> str:
        """The folder of the process that writes it."""
        return self.name.partition("/")[0]

    @property
    def is_shard(self) -> bool:
        return self.head.startswith(b"\x93NUMPY")

    @property
    def is_segment(self) -> bool:
        """Neither a shard nor a sidecar nor a record: tokens, or nothing yet."""
        return not self.is_shard and self.head != b"TOKDOCS1" and not self.head.startswith(b"{")


def _names(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries}
    except (FileNotFoundError, NotADirectoryError):
        return set()


class Watch:
    """Says, whenever it is asked, whether now is the moment to kill."""

    def __init__(self, aim: Aim, output: Output, chance: random.Random, duration_s: float) -> None:
        self._aim = aim
        self._output = output
        # About the first third of a run is start-up: worth a few kills, not a third of them.
        first = 0.0 if chance.random() < 0.2 else duration_s / 3
        self._at = time.monotonic() + chance.uniform(first, duration_s)
        skips = {Aim.SHARD: [0, 1, 2], Aim.SCATTER: [0]}  # there are few of them
        self._skip = chance.choice(skips.get(aim, [0, 0, 0, 1, 2, 3, 5, 8, 13]))
        self._shard_bytes = chance.randrange(SHARD_TOKENS * 3)
        self._known = self._look()
        self._was_sealed = output.has_seal()

    def is_now(self) -> bool:
        match self._aim:
            case Aim.RANDOM:
                return time.monotonic() >= self._at
            case Aim.SEAL:
                return self._output.has_seal() and not self._was_sealed
            case Aim.INDEX:
                return self._output.has_index()
        found = self._look()
        new = found - self._known
        self._known |= found
        self._skip -= len(new)
        return bool(new) and self._skip < 0

    def _look(self) -> set[str]:
        """Names of what the aim waits for."""
        match self._aim:
            case Aim.SEGMENT:
                return self._output.segments()
            case Aim.RECEIPT:
                return self._output.receipts()
            case Aim.SCATTER:
                return self._output.scattered()
            case Aim.SHARD:
                return {
                    file.name for file in self._output.temporary() if file.is_shard and file.size > self._shard_bytes
                }
        return set()


@dataclass
class Summary:
    """What was done. `aimed`, `hit`: kills per aim; `landed`: what kills left on the disk, whatever their aim."""

    datasets: int = 0
    starts: int = 0
    kills: int = 0
    stopped_by_limits: int = 0
    aimed: Counter[Aim] = field(default_factory=Counter)
    hit: Counter[Aim] = field(default_factory=Counter)
    landed: Counter[str] = field(default_factory=Counter)
    ranges: int = 0
    lost_ranges: int = 0

    def lines(self) -> list[str]:
        found = [
            f"{self.kills} kills in {self.starts} starts of {self.datasets} datasets, each dataset equal to an "
            f"uninterrupted run's; {self.stopped_by_limits} more starts ended at a limit",
            f"{self.lost_ranges} ranges were under way at a kill and done twice, of {self.ranges} ranges in all",
            f"{'aimed':>7} {'hit':>5}  any kill that landed there",
            f"{self.aimed[Aim.RANDOM]:>7} {'':>5} {'':>5} {Aim.RANDOM}",
        ]
        aims = aims_of(has_shuffle=self.aimed[Aim.SCATTER] > 0)
        found += [f"{self.aimed[aim]:>7} {self.hit[aim]:>5} {self.landed[aim]:>5} {aim}" for aim in aims]
        found += [f"{'':>7} {'':>5} {self.landed[place]:>5} {place}" for place in (EARLY, WORKING)]
        return found


class Chaos:
    """One session: a source, the dataset of an uninterrupted run, and one output that is killed and resumed."""

    def __init__(
        self,
        folder: Path,
        kills: int,
        seed: int,
        *,
        size: float,
        say: Callable[[str], None],
        layout: dict[str, Any],
    ) -> None:
        self._folder = folder
        self._chance = random.Random(seed)
        self._say = say
        self._layout = layout
        self._corpus = make_corpus(folder / "source", size)
        self._expected = folder / "expected"
        self._output = Output(folder / "out")
        # Half of the kills are aimed, in turn; a miss counts as a kill, but its aim comes again.
        aims = aims_of(has_shuffle="shuffle" in layout)
        self._wanted = [aims[number // 2 % len(aims)] if number % 2 else Aim.RANDOM for number in range(kills)]
        self._chance.shuffle(self._wanted)
        self.summary = Summary()

    def run(self) -> Summary:
        """Kill until every wanted kill has landed; raises `ChaosFailure`."""
        self._duration_s = self._run_uninterrupted()
        while self._wanted:
            self._one_dataset()
        return self.summary

    def _start(self, how: How, output: Path, log: Path) -> Running:
        job = make_job(
            self._corpus.folder,
            output,
            tokenizer={"name": "cl100k_base"},
            output=self._layout,
            rangeBytes=how.range_bytes,
            maxQuarantined=_number(how.max_quarantined),
            maxCorruptFiles=_number(how.max_corrupt_files),
        )
        options = ["--processes", str(how.processes), "--engine", how.engine, "--json"]
        return Running(command(job, log.parent, *options), log)

    def _run_uninterrupted(self) -> float:
        started = time.monotonic()
        how = How(2, "64Ki", "reference", "100%", "100%")
        running = self._start(how, self._expected, self._folder / "logs" / "expected")
        if running.wait() != 0:
            raise ChaosFailure(f"the uninterrupted run failed: {running.errors}")
        duration_s = time.monotonic() - started
        index = read_index(self._expected)
        self._say(f"uninterrupted: {index['tokens']:,} tokens in {duration_s:.1f} s with {how.processes} processes")
        return duration_s

    def _one_dataset(self) -> None:
        """Start, kill and start again until a start ends well; then compare and delete."""
        summary, starts, lost = self.summary, 0, 0
        engine = self._chance.choice(["reference", "reference", "reference", "fastokens"])
        while True:
            starts += 1
            how = choose_how(self._chance, engine=engine)
            if starts > 200:
                raise ChaosFailure("200 starts did not finish one dataset")
            code, lost_now = self._one_start(how, self._folder / "logs" / f"{summary.datasets:04d}-{starts:03d}")
            lost += lost_now
            if code == 0:
                break
            if code == 4:
                summary.stopped_by_limits += 1
        summary.starts += starts
        summary.datasets += 1
        summary.lost_ranges += lost
        ranges = len(self._output.receipts())
        summary.ranges += ranges
        self._compare()
        self._say(f"dataset {summary.datasets}: {ranges} ranges, {starts} starts, {lost} ranges done twice, equal")
        shutil.rmtree(self._output.folder)

    def _one_start(self, how: How, log: Path) -> tuple[int, int]:
        """One start, killed or not: exit code (-9: killed), and the number of ranges that were under way."""
        output = self._output
        receipts, shards, dead = output.receipts(), output.shard_receipts(), output.writers()
        orphans = output.segments() - receipts
        scattered = output.scattered() - output.scatter_receipts()
        aim, watch = None, None
        running = self._start(how, output.folder, log)
        if output.has_index():  # complete already: killed while it cleans up, or not at all
            if self._chance.random() < 0.5:
                watch = Watch(Aim.RANDOM, output, self._chance, 0.5)
        elif self._wanted:
            aim = self._wanted.pop()
            watch = Watch(aim, output, self._chance, self._duration_s)
        deadline = time.monotonic() + TIMEOUT_S
        while not running.has_ended and not (watch is not None and watch.is_now()):
            time.sleep(POLL_S)
            if time.monotonic() > deadline:
                running.kill()
                raise ChaosFailure(f"{log}: still running after {TIMEOUT_S} s")
        code = running.kill()
        if aim is not None and code != -9:
            self._wanted.insert(self._chance.randrange(len(self._wanted) + 1), aim)
        if code not in ((0, -9) if how.is_enough else (0, -9, 4)):
            raise ChaosFailure(f"{log}: exit code {code} with {how}: {running.errors}")

        told = [event["receipt"] for event in running.events() if event["event"] == "progress" and event["receipt"]]
        self._check_no_work_done_again(
            log, [f"{r['range_id']:08d}" for r in told if "range_id" in r], receipts, output.receipts(), how.processes
        )
        self._check_no_work_done_again(
            log,
            [f"{r['split']}/{r['index']:08d}" for r in told if "pieces" in r],
            shards,
            output.shard_receipts(),
            how.processes,
        )
        if code != -9:
            return code, 0
        if told and (stale := dead & output.writers()):
            raise ChaosFailure(f"{log}: temporary files of dead writers pile up: {sorted(stale)}")
        left = [file for file in output.temporary() if file.writer not in dead]
        new_orphans = output.segments() - output.receipts() - orphans
        lost = self._count_ranges_under_way(log, left, new_orphans, how.processes)
        known = receipts | {f"{r['range_id']:08d}" for r in told if "range_id" in r}
        landed: set[str] = set(self._where_it_landed(left, new_orphans, known))
        if output.scattered() - output.scatter_receipts() - scattered and not output.has_seal():
            landed.add(Aim.SCATTER)
        if not landed:
            landed = {WORKING if told or left else EARLY}
        self._book_kill(aim or Aim.RANDOM, landed, how)
        return code, lost

    def _check_no_work_done_again(
        self, log: Path, told: list[str], before: set[str], after: set[str], processes: int
    ) -> None:
        """What had a receipt was not done again, nothing was done twice, and all that was told is there."""
        if again := before & set(told):
            raise ChaosFailure(f"{log}: done again although there were receipts: {sorted(again)}")
        if len(told) != len(set(told)):
            raise ChaosFailure(f"{log}: done twice in one start: {[n for n, k in Counter(told).items() if k > 1]}")
        if gone := (before | set(told)) - after:
            raise ChaosFailure(f"{log}: receipts that were there are gone: {sorted(gone)}")
        if len(after - before - set(told)) > processes:
            raise ChaosFailure(f"{log}: {len(after - before - set(told))} receipts that nobody was told of")

    def _count_ranges_under_way(self, log: Path, left: list[Temporary], new_orphans: set[str], processes: int) -> int:
        """Ranges that this start had begun and not finished, from the files that it left: their work is lost.

        A writer works on one range at a time. An empty file may be a segment or a receipt in the making: it is
        then the receipt of a segment that is in its place, and not one range more.
        """
        building = {file.writer for file in left if file.is_shard}  # others of its files may have no header
        mine = [file for file in left if file.is_segment and file.writer not in building]
        writing = {file.writer for file in mine if file.size}
        beginning = {file.writer for file in mine} - writing
        inodes = {file.inode for file in mine}
        placed = [name for name in new_orphans if self._output.inode_of_segment(name) not in inodes]
        under_way = len(writing) + max(len(beginning), len(placed))
        if under_way > processes:
            raise ChaosFailure(f"{log}: {under_way} ranges were under way in {processes} processes")
        return under_way

    def _where_it_landed(self, left: list[Temporary], new_orphans: set[str], known: set[str]) -> set[Aim]:
        """What the disk says about the moment of the last kill.

        `left`, `new_orphans`: temporary files and segments without receipt of this start; `known`: receipts that
        the driver knew of.
        """
        output = self._output
        landed: set[Aim] = set()
        if output.has_index():
            return {Aim.INDEX} if (output.folder / OWN / "tmp").exists() else set()
        if output.has_seal():
            return {Aim.SEAL}
        if new_orphans:
            landed.add(Aim.SEGMENT)
        if output.receipts() - known:
            landed.add(Aim.RECEIPT)
        if any(file.is_shard and not file.is_placed for file in left):
            landed.add(Aim.SHARD)
        return landed

    def _book_kill(self, aim: Aim, landed: set[str], how: How) -> None:
        summary = self.summary
        summary.kills += 1
        summary.aimed[aim] += 1
        summary.landed.update(landed)
        if aim in landed:
            summary.hit[aim] += 1
        elif aim is not Aim.RANDOM:
            self._wanted.insert(self._chance.randrange(len(self._wanted) + 1), aim)
        where = ", ".join(sorted(landed))
        self._say(f"  kill {summary.kills:>3}  {how.processes} processes  {aim}: landed {where}")

    def _compare(self) -> None:
        """The finished dataset is the uninterrupted run's, to the byte, and nothing else is there."""
        output, expected = self._output.folder, self._expected
        problem = difference(output, expected)
        if problem is not None:
            raise ChaosFailure(problem)
        mine, theirs = read_index(output), read_index(expected)
        for part in mine.keys() | theirs.keys():
            if part != "run" and mine.get(part) != theirs.get(part):
                raise ChaosFailure(f"index.json: {part} is {mine.get(part)}, expected {theirs.get(part)}")
        kept = {path for path in files_below(expected) if not path.startswith(f"{OWN}/ledger/")}
        paths = {path for path in kept if path.startswith(f"{OWN}/documents/") or path.endswith(".zst")}
        if missing := paths - files_below(output):
            raise ChaosFailure(f"missing: {sorted(missing)}")
        for path in sorted(paths):
            if (output / path).read_bytes() != (expected / path).read_bytes():
                raise ChaosFailure(f"{path} differs from the uninterrupted run's")
        if left := leftovers(output):
            raise ChaosFailure(f"left behind: {left[:10]}")


def _number(text: str) -> int | str:
    return text if text.endswith("%") else int(text)


def run_chaos(
    folder: Path,
    *,
    kills: int,
    seed: int,
    size: float = 1.0,
    say: Callable[[str], None] = print,
    layout: dict[str, Any] = FLAT,
) -> Summary:
    """Land `kills` kills (more, where an aimed one misses) below `folder`; raises `ChaosFailure`."""
    try:
        return Chaos(folder, kills, seed, size=size, say=say, layout=layout).run()
    finally:
        kill_all()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=float, default=1.0, help="of the corpus; 1 is some 5 MB of token-rich text")
    parser.add_argument("--layout", choices=LAYOUTS, default="flat", help="of the output (flat)")
    parser.add_argument("--folder", type=Path, help="work here and keep everything (default: a temporary folder)")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="chaos-"))
    started = time.monotonic()
    try:
        layout = LAYOUTS[options.layout]
        summary = run_chaos(folder, kills=options.kills, seed=options.seed, size=options.size, layout=layout)
    except ChaosFailure as failure:
        print(f"FAILED (seed {options.seed}): {failure}\nkept: {folder}", file=sys.stderr)
        return 1
    print("\n".join(summary.lines()))
    print(f"{time.monotonic() - started:.0f} s, seed {options.seed}")
    if options.folder is None:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
