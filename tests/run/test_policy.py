"""Bad source files end to end: each hostile file beside a good one gets what the policy says, the good one is whole.

`hostile` says what a reader must find in a file; here a run must make of it: the exit class, the outcome in the table
of files, what was written and quarantined for which reason, and the same bytes whether the limits were there from the
start or were raised after a failure.
"""

from __future__ import annotations

import io
import os
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.command_line import DELIMITER, byte_shards, dataset_of, ledger_of, read_table, sample_texts, shards_of
from support.corpus import gzip_members, json_lines, zstd, zstd_frames
from support.engine.inline import inline
from support.faults.hostile import TEXTS, Hostile, encrypted_parquet, flip, hostile_files
from support.runs import leftovers, make_job
from tokenization_worker.engine.task import Task
from tokenization_worker.errors import ChangedError, DataError, SpecError, TemporaryError
from tokenization_worker.events import Finished
from tokenization_worker.inspect.show import show_documents
from tokenization_worker.pipelines.tokenize.shard_builder import BuildTask
from tokenization_worker.planning import planned_source
from tokenization_worker.run.run import Options, run_job

pytestmark = pytest.mark.slow

FILES = hostile_files()
GOOD = sample_texts("good", 12)
SHARD_TOKENS = 1 << 30

Limits = dict[str, Any]
STRICT: Limits = {"maxQuarantined": 0, "maxCorruptFiles": 0}
GENEROUS: Limits = {"maxQuarantined": "100%", "maxCorruptFiles": "100%"}


def run(source: Path, output: Path, limits: Limits, **blocks: Any) -> Finished:
    """Run in this process, all documents in one shard unless told otherwise."""
    layers = {"tokenizer": {"name": "bytes"}, "output": {"shards": {"tokens": SHARD_TOKENS}}}
    return run_job(make_job(source, output, layers, limits, blocks), executor=inline())


@cache
def good_tokens() -> np.ndarray:
    return np.concatenate([[DELIMITER, *text.encode()] for text in GOOD])


def tokens_of(output: Path) -> np.ndarray:
    return np.concatenate([np.load(io.BytesIO(content)) for _, content in sorted(shards_of(output).items())])


@pytest.mark.sampled(23, of=lambda case: (case["file"].outcome, case["file"].name.rpartition(".")[2]))
@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.id)
def test_hostile_file_gets_what_the_policy_says(file: Hostile, place: str, tmp_path: Path) -> None:
    source, output = tmp_path / "src", tmp_path / "out"
    source.mkdir()
    (source / "good.jsonl").write_bytes(json_lines(GOOD))
    name = f"{'a' if place == 'first' else 'z'}-{file.name}"
    (source / name).write_bytes(file.content)

    if file.outcome == "Read" and not file.quarantined:
        run(source, output, STRICT)
    else:
        with pytest.raises(DataError) as caught:
            run(source, output, STRICT)
        assert caught.value.exit_code == 4
        assert caught.value.reason == (file.outcome if file.outcome != "Read" else "QuarantineExceeded")
        assert caught.value.next_step
        assert name in str(caught.value) or file.outcome == "Read"
        for reason, count in file.quarantined.items():
            assert f"{reason} {count:,}" in str(caught.value)
        assert not (output / "index.json").exists()
        run(source, output, GENEROUS)

    assert_policy(file, name, output)
    if place == "first":
        run(source, tmp_path / "fresh", GENEROUS)
        assert dataset_of(tmp_path / "fresh") == dataset_of(output)


def assert_policy(file: Hostile, name: str, output: Path) -> None:
    """The tables, the tokens and the sums say what `file` is, and the good file is all there."""
    assert leftovers(output) == []
    rows = {Path(row["uri"]).name: row for row in read_table(output, "_tokenization/files.jsonl.zst")}
    good, bad = rows["good.jsonl"], rows[name]
    assert (good["outcome"], good["read"], good["documents"], good["quarantined"]) == ("Read", 12, [12], 0)
    assert good["tokens"] == [len(good_tokens())]
    assert bad["outcome"] == file.outcome
    quarantined = sum(file.quarantined.values())
    is_read = file.outcome == "Read"
    if is_read:
        assert (bad["documents"], bad["quarantined"]) == ([file.documents], quarantined)
        assert bad["read"] == file.documents + quarantined
        assert bad["detail"] == ""
    else:
        assert [bad[key] for key in ("read", "documents", "tokens", "quarantined")] == [None] * 4
        assert bad["detail"]

    listed = read_table(output, "_tokenization/quarantine.jsonl.zst")
    assert Counter(row["reason"] for row in listed) == (file.quarantined if is_read else {})
    assert {Path(row["uri"]).name for row in listed} <= {name}
    assert all(len(row["excerpt"]) <= 200 and row["record"] > 0 for row in listed)
    assert [row["position"] for row in listed] == sorted(row["position"] for row in listed)

    conservation = dataset_of(output)["index.json"]["conservation"]
    written = 12 + (file.documents if is_read else 0)
    assert conservation["read"] == conservation["written"] + sum(conservation["quarantined"].values())
    assert conservation["written"] == written
    assert conservation["quarantined"] == (file.quarantined if is_read else {})
    assert conservation["files"] == ({"Read": 2} if is_read else {"Read": 1, file.outcome: 1})

    tokens = tokens_of(output)
    assert np.count_nonzero(tokens == DELIMITER) == written, "the delimiter never comes from text"
    own = len(tokens) - len(good_tokens())
    assert (own > 0) is (is_read and file.documents > 0)
    first = own if name.startswith("a-") else 0
    assert np.array_equal(tokens[first : first + len(good_tokens())], good_tokens())


def test_all_hostile_files_together_are_told_apart(tmp_path: Path) -> None:
    """In ranges that hold many of them each; every file still gets its own outcome and its own documents."""
    source = tmp_path / "src"
    source.mkdir()
    for number, file in enumerate(FILES):
        (source / f"{number:03d}-{file.name}").write_bytes(file.content)
    (source / "999-good.jsonl").write_bytes(json_lines(GOOD))

    run(source, tmp_path / "out", GENEROUS)

    rows = read_table(tmp_path / "out", "_tokenization/files.jsonl.zst")
    found = [(row["outcome"], row["documents"], row["quarantined"]) for row in rows[:-1]]
    assert found == [
        (file.outcome, [file.documents], sum(file.quarantined.values()))
        if file.outcome == "Read"
        else (file.outcome, None, None)
        for file in FILES
    ]
    assert np.array_equal(tokens_of(tmp_path / "out")[-len(good_tokens()) :], good_tokens())


# --- a file that turns out damaged at its end

GROUPS, ROWS, RANGE_BYTES = 8, 40, "64Ki"


@dataclass(frozen=True)
class LateDamage:
    """Good files around one Parquet file that spans many ranges and is damaged in its last."""

    source: Path
    before: list[str]
    after: list[str]

    @property
    def documents(self) -> list[str]:
        return [*self.before, *self.after]


@pytest.fixture
def late_damage(tmp_path: Path) -> LateDamage:
    source = tmp_path / "src"
    source.mkdir()
    before, after = sample_texts("before", 300), sample_texts("after", 300)
    (source / "a.jsonl").write_bytes(json_lines(before))
    (source / "c.jsonl").write_bytes(json_lines(after))
    texts: list[str | None] = [f"{number:05d} {'x' * 2500}" for number in range(GROUPS * ROWS)]
    texts[3] = None  # would be quarantined; but the file is dropped whole
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"text": texts}),
        sink,
        row_group_size=ROWS,
        compression="none",
        use_dictionary=False,
        write_page_checksum=True,
    )
    content = sink.getvalue()
    (source / "b.parquet").write_bytes(flip(content, content.rindex(f"{GROUPS * ROWS - 5:05d} xxx".encode())))
    return LateDamage(source, before, after)


def late_job(late_damage: LateDamage, output: Path, *, allowed: int) -> Any:
    return make_job(
        late_damage.source,
        output,
        tokenizer={"name": "bytes"},
        output={"shards": {"tokens": 30_000}},
        rangeBytes=RANGE_BYTES,
        maxCorruptFiles=allowed,
    )


@pytest.mark.parametrize("processes", [0, 2], ids=["inline", "2-processes"])
def test_file_damaged_in_its_last_range_is_dropped_whole_and_a_raised_limit_resumes(
    processes: int, late_damage: LateDamage, tmp_path: Path
) -> None:
    built: list[str] = []

    def note(task: Task) -> None:
        if isinstance(task, BuildTask):
            built.append(task.shard.name.split)

    how: dict[str, Any] = {"options": Options(processes=processes)} if processes else {"executor": inline(note)}
    output = tmp_path / "out"

    with pytest.raises(DataError, match=r"b\.parquet.*1 of 3 files corrupt; maxCorruptFiles allows 0") as caught:
        run_job(late_job(late_damage, output, allowed=0), **how)

    assert caught.value.reason == "CorruptFile"
    expected = byte_shards(late_damage.documents, shard_tokens=30_000)
    done = shards_of(output)
    assert done.items() <= expected.items()
    if not processes:  # one after the other: the first ranges were read, and shards of the file before them built
        assert len(done) == len(built) > 0
        receipts = (output / "_tokenization" / "ledger" / "0" / "ranges").iterdir()
        assert sum(b'"file":1,' in path.read_bytes() for path in receipts) == GROUPS
    kept = ledger_of(output)

    run_job(late_job(late_damage, output, allowed=1), **how)

    assert shards_of(output) == expected
    assert kept.items() <= ledger_of(output).items()
    assert leftovers(output) == []
    rows = read_table(output, "_tokenization/files.jsonl.zst")
    assert [(row["outcome"], row["read"]) for row in rows] == [("Read", 300), ("CorruptFile", None), ("Read", 300)]
    assert read_table(output, "_tokenization/quarantine.jsonl.zst") == []
    run_job(late_job(late_damage, tmp_path / "fresh", allowed=1), executor=inline())
    assert dataset_of(tmp_path / "fresh") == dataset_of(output)


def test_damage_far_inside_a_packed_file_takes_back_all_that_was_written_of_it(tmp_path: Path) -> None:
    """Blocks of the file are in the segment already, and its bad lines in the list of its range, when it breaks."""
    source, output = tmp_path / "src", tmp_path / "out"
    source.mkdir()
    content = b"not JSON\n" * 5 + json_lines(["x" * 100_000 + str(number) for number in range(50)])
    (source / "a.jsonl").write_bytes(b"not JSON either\n" + json_lines(GOOD))
    (source / "b.jsonl.zst").write_bytes(zstd_frames(content, frames=5)[:-10])
    (source / "c.jsonl").write_bytes(json_lines(GOOD))

    run(source, output, GENEROUS, tokenizer={"name": "bytes"})

    assert np.array_equal(tokens_of(output), np.concatenate([good_tokens()] * 2))
    lists = (output / "_tokenization" / "ledger" / "0" / "quarantine").iterdir()
    rows = [zstd.decompress(path.read_bytes()) for path in lists]
    assert [b"a.jsonl" in found and b"b.jsonl" not in found for found in rows] == [True]


@pytest.mark.parametrize("range_bytes", ["64Ki", "300Ki", "16Mi"])
def test_cut_of_a_damaged_file_changes_nothing(range_bytes: str, late_damage: LateDamage, tmp_path: Path) -> None:
    job = late_job(late_damage, tmp_path / "out", allowed=1)
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"range_bytes": range_bytes})})
    run_job(job, executor=inline())
    assert shards_of(tmp_path / "out") == byte_shards(late_damage.documents, shard_tokens=30_000)


@pytest.mark.parametrize(
    ("limit", "holds"),
    [(0, False), (1, False), (2, True), ("33%", False), ("50%", True), ("49.9%", False), ("100%", True)],
    ids=str,
)
def test_limit_of_damaged_files_is_a_count_or_a_share_of_all_files(
    limit: int | str, holds: bool, tmp_path: Path
) -> None:
    source = tmp_path / "src"
    source.mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        (source / name).write_bytes(json_lines(GOOD))
    for name in ("c.jsonl.gz", "d.jsonl.gz"):
        (source / name).write_bytes(b"")
    if holds:
        assert run(source, tmp_path / "out", {"maxCorruptFiles": limit}).files_dropped == 2
    else:
        with pytest.raises(DataError, match="EmptyFile"):
            run(source, tmp_path / "out", {"maxCorruptFiles": limit})


def test_a_file_that_looks_damaged_once_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, output = tmp_path / "src", tmp_path / "out"
    source.mkdir()
    data = gzip_members(json_lines(GOOD))
    (source / "good.jsonl.gz").write_bytes(data)
    readings = iter([flip(data, len(data) // 2)])
    monkeypatch.setattr(planned_source, "open_as_listed", lambda *file: io.BytesIO(next(readings, data)))
    with pytest.raises(
        TemporaryError, match=r"StorageFailed.*good\.jsonl\.gz: corrupt when it was read first .*but intact"
    ):
        run(source, output, GENEROUS)
    assert not (output / "_tokenization" / "files").exists()
    assert run(source, output, GENEROUS).files_dropped == 0
    assert np.array_equal(tokens_of(output), good_tokens())


def test_a_job_that_refuses_its_unchanged_source_at_a_later_start_does_not_say_that_it_changed(tmp_path: Path) -> None:
    """The first start let a file pass that has no text, by another limit."""
    source, output = tmp_path / "src", tmp_path / "out"
    source.mkdir()
    (source / "a.jsonl").write_text('{"no": "text"}\n' * 20)
    (source / "b.jsonl").write_bytes(json_lines(GOOD))
    with pytest.raises(DataError, match="QuarantineExceeded"):
        run(source, output, {"maxQuarantined": 0, "maxCorruptFiles": 1})
    with pytest.raises(SpecError, match=r"SourceInvalid: .*a\.jsonl: none of its first 20 records has a text"):
        run(source, output, {"maxQuarantined": 50})
    os.utime(source / "b.jsonl", ns=(1, 1))
    with pytest.raises(ChangedError, match=r"SourceChanged: .*b\.jsonl changed since the plan was made"):
        run(source, output, {"maxQuarantined": 50})


def test_a_document_whose_id_is_encrypted_is_shown_without_it(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(encrypted_parquet(["author"]))
    job = make_job(path, tmp_path / "out", {"source": {"idField": "author"}, "tokenizer": {"name": "bytes"}})
    run_job(job, executor=inline())
    [shown] = show_documents(str(tmp_path / "out"), "train", 0)
    assert (shown.text, shown.id) == (TEXTS[0], None)
