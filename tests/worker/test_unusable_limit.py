"""A run with far more unusable documents than a count allows ends early; no byte of a dataset depends on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import dataset_of
from inline import inline
from runs import make_job, read_index

from tokenization_worker import layout
from tokenization_worker.api.quantities import Limit
from tokenization_worker.errors import DataError
from tokenization_worker.events import Finished
from tokenization_worker.limits import LISTED_BEYOND, room_left
from tokenization_worker.range_work import RangeWork
from tokenization_worker.run import run_job
from tokenization_worker.unusable import read_unusable
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
    assert "raise maxQuarantined and start again (what is done is kept)" in words
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


@pytest.mark.parametrize("limits", [{"maxQuarantined": "1%"}, {"maxQuarantined": 7, "maxCorruptFiles": 1}], ids=str)
def test_what_may_still_be_allowed_is_read_to_the_end(
    limits: dict[str, Any], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a percentage more documents may follow; a file that is dropped takes its unusable documents with it."""
    rooms: list[int | None] = []
    monkeypatch.setattr(RangeWork, "_require_room", lambda self, part: rooms.append(self._room))
    with pytest.raises(DataError, match=f"QuarantineExceeded: {BAD:,} of ") as caught:
        run(source, tmp_path / "out", limits["maxQuarantined"], **limits)
    assert "(nothing is redone)" in str(caught.value)
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
