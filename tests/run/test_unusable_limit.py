"""A run with far more unusable documents than a count allows ends early; no byte of a dataset depends on it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import structs

from support.command_line import dataset_of
from support.engine.inline import inline
from support.runs import make_job, read_index
from tokenization_worker.api.resolve import RunLimits
from tokenization_worker.api.types.quantities import Limit
from tokenization_worker.errors import DataError
from tokenization_worker.events import Finished
from tokenization_worker.inspect.unusable_documents import read_unusable
from tokenization_worker.output import layout
from tokenization_worker.output.ledger.receipts import RangeReceipt, SliceResult
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.pipelines.tokenize.ledger import TokenizeLedger
from tokenization_worker.pipelines.tokenize.ranges.range_task import TokenizeTask
from tokenization_worker.pipelines.tokenize.ranges.range_tokenizer import RangeTokenizer
from tokenization_worker.pipelines.tokenize.unusable_limit import UnusableLimit
from tokenization_worker.planning.limits import LISTED_BEYOND, list_reasons, room_left
from tokenization_worker.readers.document_batch import FileOutcome
from tokenization_worker.run.run import run_job
from tokenization_worker.storage.open import open_store
from tokenization_worker.verification.verify import verify

GOOD = [json.dumps({"text": f"document {number} of a corpus"}).encode() + b"\n" for number in range(300)]
BAD = 3 * LISTED_BEYOND
FILES = {"a.jsonl": GOOD[:100], "b.jsonl": [GOOD[100], *[b"x\n"] * BAD], "c.jsonl": GOOD[101:]}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file with many bad lines behind one document, between good ones."""
    folder = tmp_path / "src"
    folder.mkdir()
    for name, lines in FILES.items():
        (folder / name).write_bytes(b"".join(lines))
    return folder


def run(source: Path, output: Path, limit: Any, **fields: Any) -> Finished:
    job = make_job(source, output, {"tokenizer": {"name": "bytes"}, "maxQuarantined": limit}, fields)
    return run_job(job, executor=inline())


def receipts(output: Path) -> list[str]:
    return sorted(path.name for path in (output / layout.LEDGER / "0").glob("ranges/*"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("range_bytes", ["1Gi", "5000"], ids=["one range", "many ranges"])
def test_far_more_than_a_count_ends_the_run_early_and_a_raised_one_goes_on_with_the_same_bytes(
    range_bytes: str, source: Path, tmp_path: Path
) -> None:
    output, whole = tmp_path / "out", tmp_path / "whole"
    with pytest.raises(DataError, match="QuarantineExceeded") as caught:
        run(source, output, 7, rangeBytes=range_bytes)
    words = str(caught.value)
    listed = list(read_unusable(str(output)))
    assert LISTED_BEYOND + 7 < len(listed) <= 2 * LISTED_BEYOND + 7 < BAD
    assert f"{len(listed):,} of " in words
    assert (
        f" documents are unusable (InvalidJson {len(listed):,}); maxQuarantined allows 7; the run ended before" in words
    )
    assert f"the first: {source}/b.jsonl @ {len(GOOD[100])}, InvalidJson: unexpected" in words
    assert "raise maxQuarantined and start again (finished work is kept)" in words
    places = [(len(GOOD[100]) + 2 * number, number + 2) for number in range(len(listed))]
    assert [(item.position, item.record) for item in listed] == places
    done = receipts(output)

    finished = run(source, output, BAD, rangeBytes=range_bytes)

    assert set(done) < set(receipts(output)) or not done
    assert finished.documents_quarantined == BAD
    run(source, whole, "100%", rangeBytes=range_bytes)
    assert dataset_of(output) == dataset_of(whole)
    assert len(list(read_unusable(str(output)))) == BAD
    assert verify(str(output), mode="full", processes=1).findings == ()


def test_a_run_that_has_ended_early_ends_so_again_and_reads_on_no_further(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    for limit in (7, 7, 7 + LISTED_BEYOND):
        with pytest.raises(DataError, match="QuarantineExceeded"):
            run(source, output, limit, rangeBytes="5000")
        assert limit < len(list(read_unusable(str(output)))) < limit + 2 * LISTED_BEYOND
    index = run(source, output, BAD, rangeBytes="5000") and read_index(output)
    assert index["conservation"]["quarantined"] == {"InvalidJson": BAD}


class Addend(int):
    """A number that counts how often it, or a sum with it, is added up."""

    additions = 0

    def __add__(self, other: int) -> Addend:
        Addend.additions += 1
        return Addend(int(self) + int(other))

    __radd__ = __add__


def receipt_with(file: int, unusable: int) -> RangeReceipt:
    result = SliceResult(file, FileOutcome.READ, "", (1,), (1,), 1, {"InvalidJson": Addend(unusable)}, "")
    return RangeReceipt("plan", 0, file, (result,), "", 0, "", 0, 0, 0, 0, "reference", "here", 1, 0.0)


@pytest.mark.parametrize(("quarantined", "additions"), [(7, 4), ("0.1%", 0)], ids=["count", "percentage"])
def test_each_receipt_is_added_up_once_however_often_the_driver_asks(
    quarantined: int | str, additions: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """40,000 ranges of 40,000 files made the driver busy for seconds."""
    monkeypatch.setattr(Addend, "additions", 0)
    ledger = TokenizeLedger()
    limits = RunLimits(Limit.parse(quarantined), Limit.parse(0), 1 << 20)
    unusable = UnusableLimit(open_store(str(tmp_path)), 0, ledger, limits, 300)
    for number in range(300):
        ledger.add_range(receipt_with(number, 1))
        unusable.require_room()
        unusable.require_room()
    assert Addend.additions <= additions * 300


def test_unusable_documents_of_a_dropped_file_do_not_count_before_or_after_its_verdict(tmp_path: Path) -> None:
    ledger = TokenizeLedger()
    limits = RunLimits(Limit.parse(7), Limit.parse(1), 1 << 20)
    unusable = UnusableLimit(open_store(str(tmp_path)), 0, ledger, limits, 9)
    task = TokenizeTask(cast(RunContext, None), 0, (), 0)
    assert unusable.give_room(task) == task, "one more file may be dropped"
    ledger.add_verdict(0, "CorruptFile", "")
    tasks = []
    for number, (file, count) in enumerate([(0, 1 << 30), (2, 7), (3, 2), (2, 1)]):
        ledger.add_range(structs.replace(receipt_with(file, count), range_id=number))
        tasks.append(unusable.give_room(task))
    ledger.add_verdict(2, "CorruptFile", "")
    tasks.append(unusable.give_room(task))
    rooms = [LISTED_BEYOND + 7 - found for found in (0, 7, 9, 10, 2)]
    assert tasks == [replace(task, room=room) for room in rooms]


@pytest.mark.parametrize("limits", [{"maxQuarantined": "1%"}, {"maxQuarantined": 7, "maxCorruptFiles": 1}], ids=str)
def test_what_may_still_be_allowed_is_read_to_the_end(
    limits: dict[str, Any], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a percentage more documents may follow; a file that is dropped takes its unusable documents with it."""
    rooms: list[int | None] = []
    monkeypatch.setattr(RangeTokenizer, "_require_room", lambda self, part: rooms.append(self._room))
    with pytest.raises(DataError, match=f"QuarantineExceeded: {BAD:,} of ") as caught:
        run(source, tmp_path / "out", limits["maxQuarantined"], **limits)
    assert "(no work is repeated)" in str(caught.value)
    assert set(rooms) == {None}


@pytest.mark.parametrize(
    ("limit", "found", "may_drop_files", "room"),
    [
        (7, 0, False, 7 + LISTED_BEYOND),
        (7, 7 + LISTED_BEYOND, False, 0),
        (7, 8 + LISTED_BEYOND, False, -1),
        (0, 0, False, LISTED_BEYOND),
        (7, 1 << 40, True, None),
        ("0.1%", 1 << 40, False, None),
        ("100%", 1 << 40, False, None),
    ],
)
def test_room_left(limit: int | str, found: int, may_drop_files: bool, room: int | None) -> None:
    assert room_left(Limit.parse(limit), found, may_drop_files=may_drop_files) == room


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        ({"InvalidJson": 6}, "InvalidJson 6"),
        ({"InvalidJson": 1_006, "B": 3, "C": 2, "D": 1}, "InvalidJson 1,006, B 3, C 2, 1 other"),
        ({"InvalidJson": 6, "B": 1, "C": 1, "D": 1, "E": 1}, "InvalidJson 6, B 1, C 1, 2 others"),
    ],
)
def test_the_counts_of_reasons_add_up(reasons: dict[str, int], words: str) -> None:
    assert list_reasons(Counter(reasons)) == words
