"""One large gzip or zstd file end to end: many ranges, the same bytes, dropped whole, and no restart from zero."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support.command_line import byte_shards, dataset_of, ledger_of, read_table, sample_texts, shards_of
from support.corpus import json_lines
from support.engine.inline import inline
from support.runs import leftovers, make_job
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.engine.executor import UnderWay, take_idle
from tokenization_worker.engine.task import Done, Task, Worker, WorkerState
from tokenization_worker.engine.task_progress import ignore_advance
from tokenization_worker.errors import DataError
from tokenization_worker.events import Event, Progress
from tokenization_worker.output.plan_file import Plan, read_plan
from tokenization_worker.pipelines.tokenize.ranges.range_task import TokenizeTask
from tokenization_worker.planning import make_plan as planning
from tokenization_worker.planning import planned_source
from tokenization_worker.planning.cut import MOST_PACKED_PIECES
from tokenization_worker.readers.decompress import zstd
from tokenization_worker.readers.detection import sizes
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.storage import sources
from tokenization_worker.storage.base import ByteReader
from tokenization_worker.storage.open import open_store
from tokenization_worker.storage.source_file import SourceFile
from tokenization_worker.verification.verify import verify

pytestmark = pytest.mark.slow

SHARD_TOKENS = 100_000
BAD = b"not JSON\n"


def piped_zstd(data: bytes) -> bytes:
    """One frame with a checksum that does not say how much it holds."""
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.checksum_flag: 1})
    return compressor.compress(data[:100]) + compressor.compress(data[100:]) + compressor.flush()


PACKS: dict[str, Callable[[bytes], bytes]] = {
    "b.jsonl.gz": gzip.compress,
    "b.jsonl.zst": piped_zstd,
    "b.members.jsonl.gz": lambda data: gzip.compress(data[:1_000_001]) + gzip.compress(data[1_000_001:]),
    "b.frames.jsonl.zst": lambda data: zstd.compress(data[:1_000_001]) + zstd.compress(data[1_000_001:]),
}


@dataclass(frozen=True)
class Straggler:
    """A folder of three files; `b` is 200 times as large as the others, and a tenth of its lines are unusable."""

    source: Path
    before: list[str]
    large: list[str]
    after: list[str]

    @property
    def large_file(self) -> Path:
        return next(self.source.glob("b.*"))

    def job(self, output: Path, range_bytes: str = "16Ki", **blocks: Any) -> TokenizationJob:
        layers = {"tokenizer": {"name": "bytes"}, "output": {"shards": {"tokens": SHARD_TOKENS}}}
        return make_job(self.source, output, layers, {"rangeBytes": range_bytes, "maxQuarantined": "50%"}, blocks)

    def shards(self) -> dict[str, bytes]:
        return byte_shards([*self.before, *self.large, *self.after], shard_tokens=SHARD_TOKENS)

    def shards_without(self) -> dict[str, bytes]:
        return byte_shards([*self.before, *self.after], shard_tokens=SHARD_TOKENS)


def make_straggler(folder: Path, name: str) -> Straggler:
    chance = random.Random(7)
    large = ["", *(chance.randbytes(chance.randrange(1, 4000)).hex() for _ in range(400)), "x" * 300_000, ""]
    lines = json_lines(large).splitlines(keepends=True)
    found = Straggler(folder, sample_texts("before", 12), large, sample_texts("after", 12))
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(json_lines(found.before))
    (folder / "c.jsonl").write_bytes(json_lines(found.after))
    content = b"".join(line + (BAD if number % 10 == 3 else b"") for number, line in enumerate(lines))
    (folder / name).write_bytes(PACKS[name](content))
    return found


@pytest.fixture(params=PACKS)
def straggler(request: pytest.FixtureRequest, tmp_path: Path) -> Straggler:
    return make_straggler(tmp_path / "src", request.param)


@pytest.fixture
def one_straggler(tmp_path: Path) -> Straggler:
    return make_straggler(tmp_path / "src", "b.jsonl.zst")


def plan_of(output: Path) -> Plan:
    plan = read_plan(open_store(str(output)))
    assert plan is not None
    return plan


def parts_of_large(plan: Plan) -> int:
    return int(np.count_nonzero(plan.cut.slice_file == 1))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("range_bytes", "factor", "pieces"),
    [
        ("16Ki", 1, (MOST_PACKED_PIECES, MOST_PACKED_PIECES)),
        ("400Ki", 1, (2, 5)),
        ("256Mi", 1, (1, 1)),
        ("64Ki", 0.01, (10, MOST_PACKED_PIECES)),
        ("64Ki", 100, (10, MOST_PACKED_PIECES)),
    ],
    ids=["many pieces", "few pieces", "not cut", "size far too small", "size far too large"],
)
def test_same_bytes_whatever_the_cut_and_however_wrong_the_size(
    range_bytes: str,
    factor: float,
    pieces: tuple[int, int],
    straggler: Straggler,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def estimate(*arguments: Any) -> int:
        return int(sizes.estimate_content_bytes(*arguments) * factor)

    monkeypatch.setattr(planning, "estimate_content_bytes", estimate)
    told: list[Event] = []

    run_job(straggler.job(tmp_path / "out", range_bytes), executor=inline(), on_progress=told.append)

    assert pieces[0] <= parts_of_large(plan_of(tmp_path / "out")) <= pieces[1]
    assert shards_of(tmp_path / "out") == straggler.shards()
    last = [event for event in told if isinstance(event, Progress)][-1]
    assert last.bytes_done == last.bytes_total == sum(file.stat().st_size for file in straggler.source.iterdir())
    listed = read_table(tmp_path / "out", "_tokenization/quarantine.jsonl.zst")
    assert [row["record"] for row in listed] == [5 + 11 * number for number in range(len(listed))]
    assert len(listed) == 40
    run_job(straggler.job(tmp_path / "whole", "1Gi"), executor=inline())
    assert dataset_of(tmp_path / "whole") == dataset_of(tmp_path / "out")


def test_two_processes_give_the_bytes_that_verify_proves(straggler: Straggler, tmp_path: Path) -> None:
    run_job(straggler.job(tmp_path / "out"), options=Options(processes=2))
    assert shards_of(tmp_path / "out") == straggler.shards()
    assert verify(str(tmp_path / "out"), mode="full", processes=1).findings == ()


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda stored: stored[:-1],
    "wrong checksum": lambda stored: stored[:-2] + bytes([stored[-2] ^ 1]) + stored[-1:],
    "garbage after the end": lambda stored: stored + b"garbage, and more of it",
    "broken in the middle": lambda stored: stored[: len(stored) // 2] + b"\xff" * 64 + stored[len(stored) // 2 + 64 :],
}


@pytest.mark.sampled(3, of=lambda case: case["damage"])
@pytest.mark.parametrize("processes", [0, 2], ids=["inline", "2-processes"])
@pytest.mark.parametrize("damage", DAMAGE, ids=str)
@pytest.mark.parametrize("name", ["b.jsonl.gz", "b.jsonl.zst"], ids=str)
def test_damage_found_late_voids_the_earlier_ranges_and_a_raised_limit_resumes(
    name: str, damage: str, processes: int, tmp_path: Path
) -> None:
    straggler = make_straggler(tmp_path / "src", name)
    straggler.large_file.write_bytes(DAMAGE[damage](straggler.large_file.read_bytes()))
    output = tmp_path / "out"
    how: dict[str, Any] = {"options": Options(processes=processes)} if processes else {"executor": inline()}

    with pytest.raises(DataError, match=r"b\.jsonl\.\w+: .*1 of 3 files corrupt; maxCorruptFiles allows 0") as caught:
        run_job(straggler.job(output), **how)

    assert caught.value.reason == "CorruptFile"
    assert shards_of(output).items() <= straggler.shards_without().items()
    receipts = [path.read_bytes() for path in (output / "_tokenization" / "ledger" / "0" / "ranges").iterdir()]
    outcomes = {b'"CorruptFile"' in receipt for receipt in receipts if b'"file":1,' in receipt}
    assert True in outcomes
    assert processes or False in outcomes, "one after the other: earlier pieces were read, and count for nothing"
    kept = ledger_of(output)

    run_job(straggler.job(output, maxCorruptFiles=1), **how)

    assert shards_of(output) == straggler.shards_without()
    assert kept.items() <= ledger_of(output).items()
    assert leftovers(output) == []
    rows = read_table(output, "_tokenization/files.jsonl.zst")
    assert [(row["outcome"], row["read"]) for row in rows] == [("Read", 12), ("CorruptFile", None), ("Read", 12)]
    assert read_table(output, "_tokenization/quarantine.jsonl.zst") == []
    assert verify(str(output), mode="full", processes=1).findings == ()
    run_job(straggler.job(tmp_path / "whole", "1Gi", maxCorruptFiles=1), executor=inline())
    assert dataset_of(tmp_path / "whole") == dataset_of(output)


class Killed(Exception):
    """Stands for the end of the process."""


def stop_after(count: int) -> Callable[[Task], None]:
    def before(task: Task) -> None:
        nonlocal count
        count -= isinstance(task, TokenizeTask)
        if count < 0:
            raise Killed

    return before


@pytest.mark.parametrize("second", ["16Ki", "1Gi"], ids=["same cut", "other range size"])
def test_a_restart_goes_on_within_the_file(second: str, one_straggler: Straggler, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with pytest.raises(Killed):
        run_job(one_straggler.job(output), executor=inline(stop_after(20)))
    kept = ledger_of(output)
    assert len(kept) >= 19
    read: list[int] = []

    def note(task: Task) -> None:
        if isinstance(task, TokenizeTask):
            read.append(task.range_id)

    run_job(one_straggler.job(output, second), executor=inline(note))

    assert len(read) == plan_of(output).n_ranges - 20, "the plan that is there decides the cut"
    assert kept.items() <= ledger_of(output).items()
    assert shards_of(output) == one_straggler.shards()


def test_a_plan_that_left_the_file_whole_stays_as_it_is(one_straggler: Straggler, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with pytest.raises(Killed):
        run_job(one_straggler.job(output, "1Gi"), executor=inline(stop_after(0)))
    run_job(one_straggler.job(output), executor=inline())
    assert parts_of_large(plan_of(output)) == 1
    assert shards_of(output) == one_straggler.shards()


def test_one_process_takes_in_the_file_once(
    one_straggler: Straggler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = 0

    def open_counted(file: SourceFile, listed: str) -> ByteReader:
        stream = sources.open_as_listed(file, listed)
        if Path(file.uri) == one_straggler.large_file:
            read = stream.read

            def counted(size: int = -1, /) -> bytes:
                nonlocal taken
                data = read(size)
                taken += len(data)
                return data

            stream = SimpleNamespace(read=counted, seek=stream.seek, tell=stream.tell, close=stream.close)
        return stream

    monkeypatch.setattr(planned_source, "open_as_listed", open_counted)
    run_job(one_straggler.job(tmp_path / "out"), executor=inline())
    assert parts_of_large(plan_of(tmp_path / "out")) == MOST_PACKED_PIECES
    assert taken == one_straggler.large_file.stat().st_size


class TwoWorkers:
    """An executor in this process."""

    slots = 2

    def __init__(self) -> None:
        self.tasks: list[tuple[str, Task]] = []
        self._idle = ["one", "other"]
        self._running: list[tuple[str, Task]] = []

    def blocked_reason(self) -> str:
        return ""

    def under_way(self) -> UnderWay:
        return UnderWay(2, 2)

    def submit(self, task: Task, worker: Worker | None = None) -> None:
        self._running.append((take_idle(self._idle, worker), task))
        self.tasks.append(self._running[-1])

    def wait(self, timeout_s: float) -> list[Done]:
        del timeout_s
        worker, task = self._running.pop(0)
        self._idle.append(worker)
        return [Done(task, task.run(WorkerState(str(worker)), ignore_advance), worker)]

    def close(self, *, grace_s: float = 0.0) -> list[Done]:
        del grace_s
        return []


def test_each_of_two_workers_goes_on_where_it_is(one_straggler: Straggler, tmp_path: Path) -> None:
    executor = TwoWorkers()
    run_job(one_straggler.job(tmp_path / "out"), executor=lambda prepared, context: executor)
    assert shards_of(tmp_path / "out") == one_straggler.shards()
    jumps = 0
    for name in ("one", "other"):
        mine = [task.range_id for worker, task in executor.tasks if worker == name and isinstance(task, TokenizeTask)]
        assert len(mine) > 10
        jumps += sum(b != a + 1 for a, b in pairwise(mine))
    assert jumps <= 4, "into the file, into its second half, and out of it"


def test_lost_segments_of_pieces_are_made_again(one_straggler: Straggler, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with pytest.raises(Killed):
        run_job(one_straggler.job(output), executor=inline(stop_after(25)))
    for path in (output / "_tokenization" / "ledger" / "0" / "segments").iterdir():
        path.unlink()
    run_job(one_straggler.job(output), executor=inline())
    assert shards_of(output) == one_straggler.shards()


@pytest.mark.parametrize("source", [{}, {"documentSeparator": "xyx"}], ids=["no separator", "overlaps itself"])
def test_text_that_cannot_be_cut_stays_whole(source: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "src"
    folder.mkdir()
    content = "\n".join(random.Random(1).randbytes(500).hex() for _ in range(200))
    (folder / "a.txt.gz").write_bytes(gzip.compress(content.encode()))
    layers = {"tokenizer": {"name": "bytes"}, "output": {"shards": {"tokens": 1 << 20}}, "rangeBytes": "16Ki"}
    job = make_job(folder, tmp_path / "out", layers, {"source": {"format": "Text", **source}})
    run_job(job, executor=inline())
    assert plan_of(tmp_path / "out").n_ranges == 1
    assert shards_of(tmp_path / "out") == byte_shards([content], shard_tokens=1 << 20)
