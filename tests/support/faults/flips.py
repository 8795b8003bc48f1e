"""Flip single bits of an output and see that nothing wrong is accepted in silence.

    PYTHONPATH=tests python tests/support/faults/flips.py --flips 1000 --seed 1 [--jobs 2]

Every flip hits one file of an output that is finished, or that a run was killed in: each class of files as often as any
other. The file's size and times stay as they were, as on a disk that rots. Then everything that reads it is asked: the
same run (after a flip in the samples of its plan: with another version of a library, for which it reads them),
`status`, `verify` in all modes, `open_dataset` and a run with a new rerunToken. What each of them may answer:

    refused    an error or a finding names the damage
    healed     it was written again, and the dataset is the one that it should be
    harmless   no answer differs from that of the undamaged output
    as it is   a token of a finished shard: a reader of tokens gets the flipped one, and every mode of verify names it

Anything else is a failure: a wrong answer without a word, a traceback, an error that calls itself a bug.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson

from support.command_line import dataset_of
from support.faults.flip_answers import ANSWERS, ask, known
from support.faults.flip_states import FAILED, FINISHED, World
from tokenization_worker.dataset.dataset import open_dataset
from tokenization_worker.errors import TokenizationError
from tokenization_worker.inspect.status import read_status
from tokenization_worker.output import versions
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.verification.report import VerifyMode
from tokenization_worker.verification.verify import verify

OUTCOMES = ("refused", "healed", "harmless", "as it is")
FAILURES = ("SILENT", "TRACEBACK", "EXIT 1")

ROT = "shard, same time"
"""A shard of an unfinished run whose size and time of change are those that its receipt has."""


class Failure(Exception):
    """A flip was answered in a way that it must not be."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True)
class Flip:
    """One bit of one file of one state. `keeps_time`: the file's times are put back."""

    state: str
    kind: str
    path: str
    bit: int
    keeps_time: bool

    def __str__(self) -> str:
        return f"{self.state}: bit {self.bit % 8} of byte {self.bit // 8} of {self.path}"

    def apply(self, output: Path) -> None:
        path = output / self.path
        status = path.stat()
        with path.open("r+b") as file:
            file.seek(self.bit // 8)
            byte = file.read(1)[0]
            file.seek(self.bit // 8)
            file.write(bytes([byte ^ 1 << self.bit % 8]))
        if self.keeps_time:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        else:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))


@dataclass(frozen=True)
class Judged:
    """What came of a flip: one of OUTCOMES or FAILURES, and for the latter how."""

    flip: Flip
    outcome: str
    detail: str = ""
    words: tuple[str, ...] = ()


def choose_flip(world: World, number: int, seed: int) -> Flip:
    """The `number`-th flip: every second hits a finished output, and classes take turns."""
    chance = random.Random(f"{seed} {number}")
    state = FINISHED if number % 2 else chance.choice([state for state in world.states if state != FINISHED])
    files: defaultdict[str, list[str]] = defaultdict(list)
    for kind, path in world.files(state):
        files[kind].append(path)
    kind = sorted(files)[number // 2 % len(files)]
    path = chance.choice([path for path in files[kind] if world.size(state, path)])
    keeps_time = state == FINISHED or chance.random() < 0.5
    if kind == "shard" and state != FINISHED and keeps_time:
        kind = ROT
    return Flip(state, kind, path, chance.randrange(8 * world.size(state, path)), keeps_time)


@contextmanager
def _named(words: list[str], what: str) -> Iterator[None]:
    """Note an error that has a name; raise `Failure` for any other."""
    try:
        yield
    except TokenizationError as error:
        if error.exit_code == 1 or not error.next_step:
            raise Failure("EXIT 1", f"{what}: {error}") from error
        words.append(f"{what}: {error.reason}")
    except Failure:
        raise
    except Exception as error:
        raise Failure("TRACEBACK", f"{what}: {''.join(traceback.format_exception(error)[-4:])}") from error


def judge(world: World, truth: dict[str, Any], flip: Flip) -> Judged:
    """Flip the bit, ask everything that reads it, and judge the answers."""
    world.put_back(flip.state)
    flip.apply(world.output)
    try:
        return _judge_finished(world, truth, flip) if flip.state == FINISHED else _judge_killed(world, flip)
    except Failure as failure:
        return Judged(flip, failure.kind, failure.detail)


def _judge_killed(world: World, flip: Flip) -> Judged:
    """The same run goes on to the right end, or says what is damaged."""
    flipped = (world.output / flip.path).read_bytes()
    with _named([], "status"):
        if (said := read_status(str(world.output)).reason) not in ("", FAILED):
            raise Failure("SILENT", f"status says of the last start that it failed by {said}")
    words: list[str] = []
    with _named(words, "run"), _other_versions() if flip.kind == "samples" else nullcontext():
        world.run()
    if words:
        return Judged(flip, "refused", words=tuple(words))
    if _content(world.output) != world.truth:
        raise Failure("SILENT", "run ended, and the dataset is another one")
    return Judged(flip, "harmless" if _is_same(world, flip, flipped) else "healed")


@contextmanager
def _other_versions() -> Iterator[None]:
    """A parser of another version, under which a run reads the samples of its plan."""
    found = versions._parser_versions()
    load_tokenizer.cache_clear()  # what was compared for a tokenizer that is loaded is not compared again
    with patch.object(versions, "_parser_versions", lambda: found | {"orjson": "3.0.0"}):
        yield
    load_tokenizer.cache_clear()


def _judge_finished(world: World, truth: dict[str, Any], flip: Flip) -> Judged:
    flipped = (world.output / flip.path).read_bytes()
    words: list[str] = []
    with _named(words, "run"):
        world.run()
    differs = not _is_whole(world)
    for mode in VerifyMode:
        said = len(words)
        with _named(words, f"verify {mode}"):
            report = verify(str(world.output), mode=mode, processes=1)
            words += [f"verify {mode}: {finding.fault}" for finding in report.findings]
        if differs and len(words) == said:
            raise Failure("SILENT", f"verify {mode} finds nothing")
    is_as_it_is = _compare_answers(world, truth, words, is_shard=flip.kind == "shard")
    said = len(words)
    with _named(words, "rerun"):
        world.run(rerun="again")
    if len(words) > said:
        return Judged(flip, "refused", words=tuple(words))
    if _content(world.output) != world.truth:
        raise Failure("SILENT", "a run with a new rerunToken ended, and the dataset is another one")
    if is_as_it_is:
        return Judged(flip, "as it is", words=tuple(words))
    is_same = _is_same(world, flip, flipped)
    return Judged(flip, "healed" if not is_same else "refused" if words else "harmless", words=tuple(words))


def _is_same(world: World, flip: Flip, flipped: bytes) -> bool:
    path = world.output / flip.path
    return path.exists() and path.read_bytes() == flipped


def _content(output: Path) -> dict[str, Any]:
    try:
        return dataset_of(output)
    except Exception as error:  # noqa: BLE001  whatever a damaged file makes of it: it is not the dataset
        return {"unreadable": str(error)}


def _is_whole(world: World) -> bool:
    """Whether every file of the dataset says what it said."""
    try:
        index = orjson.loads((world.output / "index.json").read_bytes())
        return _content(world.output) == world.truth and known(index, world.index) == known(world.index, world.index)
    except (ValueError, AttributeError):
        return False


def _compare_answers(world: World, truth: dict[str, Any], words: list[str], *, is_shard: bool) -> bool:
    """Raise `Failure` for a wrong answer; whether tokens of a shard were read as they are."""
    is_as_it_is = False
    for name, question in ANSWERS.items():
        said = len(words)
        answer = None
        with _named(words, f"open_dataset {name}"):
            answer = question(world, open_dataset(world.output))
        if len(words) == said and answer != truth[name]:
            if not (is_shard and name in ("tokens", "shards")):
                raise Failure("SILENT", f"open_dataset: wrong {name}")
            is_as_it_is = True
    return is_as_it_is


@dataclass
class Summary:
    """Outcomes by class of files."""

    judged: list[Judged] = field(default_factory=list)

    @property
    def failures(self) -> list[Judged]:
        return [one for one in self.judged if one.outcome in FAILURES]

    def lines(self) -> list[str]:
        """The table: class of files x outcome."""
        counts: defaultdict[tuple[bool, str], Counter[str]] = defaultdict(Counter)
        for one in self.judged:
            counts[one.flip.state == FINISHED, one.flip.kind][one.outcome] += 1
        columns = ("flips", *OUTCOMES, *FAILURES)
        rows = [f"{'':<34}" + "".join(f"{name:>11}" for name in columns)]
        for (is_finished, kind), found in sorted(counts.items(), reverse=True):
            name = f"{'finished' if is_finished else 'killed'}: {kind}"
            numbers = [found.total(), *(found[outcome] for outcome in (*OUTCOMES, *FAILURES))]
            rows.append(f"{name:<34}" + "".join(f"{number:>11,}" for number in numbers))
        everything = Counter(one.outcome for one in self.judged)
        numbers = [len(self.judged), *(everything[outcome] for outcome in (*OUTCOMES, *FAILURES))]
        return [*rows, f"{'all':<34}" + "".join(f"{number:>11,}" for number in numbers)]


def run_flips(folder: Path, numbers: Iterable[int], seed: int) -> Iterator[Judged]:
    """Judge these flips in a world of their own below `folder`."""
    world = World(folder)
    truth = ask(world)
    for number in numbers:
        yield judge(world, truth, choose_flip(world, number, seed))


def _run_share(share: tuple[Path, range, int]) -> list[Judged]:
    return list(run_flips(*share))


def main() -> int:
    parser = argparse.ArgumentParser(description="flip bits of an output; everything that reads it must notice")
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--verbose", action="store_true", help="say what was answered to each flip")
    options = parser.parse_args()
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="flips-"))
    summary = Summary()
    n_worlds = options.jobs * 4
    borders = [options.flips * number // n_worlds for number in range(n_worlds + 1)]
    shares = [(folder / str(first), range(first, end), options.seed) for first, end in pairwise(borders)]
    try:
        with ProcessPoolExecutor(options.jobs, mp_context=get_context("fork")) as pool:
            for judged in pool.map(_run_share, shares):
                summary.judged += judged
                for one in judged:
                    if one.outcome in FAILURES or options.verbose:
                        print(f"{one.outcome}: {one.flip}: {one.detail}{'; '.join(one.words)}", file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(summary.lines()))
    print(f"{time.monotonic() - started:.0f} s, seed {options.seed}")
    return 1 if summary.failures else 0


if __name__ == "__main__":
    sys.exit(main())
