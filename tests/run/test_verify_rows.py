"""`verify` passes rows as a run writes them, and names what was done to them, however well it was covered up."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.corpus import zstd
from support.engine.inline import inline
from support.faults.plant_rows import RowPlanter
from support.forked_commands import TOKJOB
from support.format_oracle import SUFFIXES
from support.row_oracle import RowShard
from support.runs import make_job, read_index, run_command
from tokenization_worker import run_job, verify
from tokenization_worker.verification.report import Fault, VerifyMode, VerifyReport
from tokenization_worker.verification.shards.check import check_shard

MODES = list(VerifyMode)
FORMATS = ["Npy", "Raw", "LlmC", "Megatron", "WebDataset"]
SPLITS: dict[str, list[dict[str, Any]]] = {
    "one": [{"name": "train"}],
    "leading": [{"name": "test", "shards": 2}, {"name": "train"}],
    "shares": [{"name": "test", "share": "25%"}, {"name": "train"}],
}


@pytest.fixture(autouse=True)
def samples_of_small_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The datasets here are so small that their samples would be all documents."""
    monkeypatch.setattr("tokenization_worker.verification.verify.SAMPLE_LEAST", 4)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five files; one without documents, some documents empty, some longer than the rows."""
    folder = tmp_path_factory.mktemp("source")
    chance = random.Random(5)
    words = ["alpha", "beta", "gamma", "ä", "日本", "0"]
    for file, count in enumerate([40, 0, 1, 25, 60]):
        sizes = [0 if at % 9 == 4 else chance.randrange(90 if at % 7 == 3 else 12) for at in range(count)]
        texts = [" ".join(chance.choice(words) for _ in range(size)) for size in sizes]
        content = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (folder / f"{file}.jsonl").write_text(content or "\n")
    return folder


def made(
    source: Path,
    output: Path,
    /,
    *,
    length: int = 64,
    scope: str = "Stream",
    position: str = "After",
    pad: int | None = 300,
    shard_rows: int = 5,
    splits: str = "one",
    formats: list[str] | None = None,
    **fields: Any,
) -> Path:
    """A dataset of rows of the tokenizer `bytes`."""
    sequence = {"length": length, "scope": scope, **({} if pad is None else {"pad": {"id": pad}})}
    layout = {
        "formats": formats or FORMATS,
        "sequence": sequence,
        "shards": {"sequences": shard_rows},
        "splits": SPLITS[splits],
    }
    tokenizer = {"name": "bytes", "delimiter": {"position": position}}
    run_job(make_job(source, output, tokenizer=tokenizer, output=layout, **fields), executor=inline())
    return output


def check(output: Path, mode: str = "full") -> VerifyReport:
    return verify(output, mode=mode, processes=1, sample_one_in=10)


def shown(report: VerifyReport) -> str:
    return "\n".join(map(str, report.findings))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("splits", SPLITS)
@pytest.mark.parametrize("position", ["Before", "After", "None"])
@pytest.mark.parametrize("scope", ["Stream", "File"])
@pytest.mark.parametrize("length", [2, 64, 333])
def test_rows_that_a_run_wrote_pass(
    source: Path, tmp_path: Path, splits: str, position: str, scope: str, length: int
) -> None:
    """In every mode. With `Before` the delimiter is the padding, too."""
    pad = None if position == "Before" else 300
    shard_rows = 200 if length == 2 else 5
    options: dict[str, Any] = {"pad": pad, "shard_rows": shard_rows, "splits": splits}
    output = made(source, tmp_path / "out", length=length, scope=scope, position=position, **options)
    index = read_index(output)
    for mode in MODES:
        report = check(output, mode)
        assert not report.findings, shown(report)
        assert (report.digest, report.tokens) == (index["digest"], index["tokens"])
        if mode is VerifyMode.FULL:
            assert report.tokens_compared == index["tokens"]
        if mode is VerifyMode.SAMPLE:
            assert 0 < report.documents_compared < report.documents


# --- faults that are covered up: all checksums, tables and digests agree with them


PAD = 300


@pytest.fixture(scope="module", params=["Stream", "File"])
def whole(source: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of each scope, not to be written to."""
    return made(source, tmp_path_factory.mktemp("whole") / "out", scope=request.param)


@pytest.fixture
def planter(whole: Path, tmp_path: Path) -> RowPlanter:
    shutil.copytree(whole, tmp_path / "out")
    return RowPlanter(tmp_path / "out")


def test_forging_nothing_writes_back_the_same_bytes(planter: RowPlanter) -> None:
    before = {path: path.read_bytes() for path in planter.output.rglob("*") if path.is_file()}
    planter.write()
    after = {path: path.read_bytes() for path in planter.output.rglob("*") if path.is_file()}
    changed = {str(path.relative_to(planter.output)) for path in before if before[path] != after.get(path)}
    assert {path for path in changed if "/shards/" not in path} == set()  # receipts name the files that were written
    assert before.keys() == after.keys()


def require(report: VerifyReport, fault: Fault, path: str, token: int | None) -> None:
    places = {(finding.fault, finding.path, finding.token) for finding in report.findings}
    assert (fault, path, token) in places, shown(report)


def require_found(planter: RowPlanter, fault: Fault, path: str, token: int | None) -> None:
    """Every mode finds it: no source is needed."""
    planter.write()
    for mode in MODES:
        require(check(planter.output, mode), fault, path, token)


def require_found_by_source(planter: RowPlanter, fault: Fault, path: str, token: int | None) -> VerifyReport:
    """Nothing but the source shows it."""
    planter.write()
    report = check(planter.output, "checksums")
    assert not report.findings, shown(report)
    report = check(planter.output, "full")
    require(report, fault, path, token)
    return report


def _part(shard: RowShard, least: int = 4) -> int:
    """A part in the middle of the shard, with another one of the same row behind it."""
    for number, (part, following) in enumerate(itertools.pairwise(shard.parts)):
        if part.row > 0 and part.row == following.row and min(part.length, following.length) >= least:
            return number
    raise ValueError("no such part")


def test_a_part_that_was_moved_is_found(planter: RowPlanter) -> None:
    number = _part(planter.shards_of(0)[1])
    part = planter.shards_of(0)[1].parts[number]

    def change(shards: list[RowShard]) -> None:
        shards[1].parts[number] = part._replace(start=part.start + 1, length=part.length - 1)

    planter.change = change
    token = part.row * 64 + part.start + 1
    require_found(planter, Fault.PARTS_WRONG, planter.parts_path(0, 1), token)


def test_a_part_that_is_listed_twice_is_found(planter: RowPlanter) -> None:
    number = _part(planter.shards_of(0)[1])
    part = planter.shards_of(0)[1].parts[number]
    planter.change = lambda shards: shards[1].parts.insert(number, part)
    require_found(planter, Fault.PARTS_WRONG, planter.parts_path(0, 1), part.row * 64 + part.start)


def test_a_part_that_is_missing_is_found(planter: RowPlanter) -> None:
    number = _part(planter.shards_of(0)[1])
    following = planter.shards_of(0)[1].parts[number + 1]
    planter.change = lambda shards: shards[1].parts.__delitem__(number)
    token = following.row * 64 + following.start
    require_found(planter, Fault.PARTS_WRONG, planter.parts_path(0, 1), token)


def test_a_part_with_the_offset_of_another_place_is_found(planter: RowPlanter) -> None:
    """Of a document that goes on in the next row, and of one that goes on in the next shard."""
    shards = planter.shards_of(0)
    inner = next(i for i, part in enumerate(shards[1].parts) if part.offset and part.row)
    outer = next(i for i in range(3, len(shards)) if shards[i].parts[0].offset and not shards[i].parts[1].offset)
    places = [(1, inner), (outer, 0)]

    def change(shards: list[RowShard]) -> None:
        for shard, number in places:
            part = shards[shard].parts[number]
            shards[shard].parts[number] = part._replace(offset=part.offset + 1)

    planter.change = change
    planter.write()
    report = check(planter.output, "checksums")
    for shard, number in places:
        part = shards[shard].parts[number]
        require(report, Fault.PARTS_WRONG, planter.parts_path(0, shard), part.row * 64 + part.start)


def test_parts_of_documents_out_of_order_are_found(planter: RowPlanter) -> None:
    """The places of two whole documents are in each other's place."""
    parts = planter.shards_of(0)[1].parts
    number = next(
        i for i in range(1, len(parts) - 2) if all(part.offset == 0 for part in parts[i : i + 3]) and parts[i].row
    )
    first, second = parts[number : number + 2]

    def change(shards: list[RowShard]) -> None:
        shards[1].parts[number] = first._replace(position=second.position)
        shards[1].parts[number + 1] = second._replace(position=first.position)

    planter.change = change
    token = second.row * 64 + second.start
    require_found(planter, Fault.PARTS_WRONG, planter.parts_path(0, 1), token)


@pytest.mark.parametrize("what", ["tokens", "rows"])
def test_two_swapped_rows_are_found(planter: RowPlanter, what: str) -> None:
    """Their tokens alone, or with all their parts."""

    def change(shards: list[RowShard]) -> None:
        rows, parts = shards[1]
        rows[1], rows[2] = rows[2], rows[1]
        if what == "rows":
            numbers = {1: 2, 2: 1}
            parts[:] = sorted(
                (part._replace(row=numbers.get(part.row, part.row)) for part in parts),
                key=lambda part: (part.row, part.start),
            )

    planter.change = change
    planter.write()
    fault = Fault.DELIMITER_WRONG if what == "tokens" else Fault.PARTS_WRONG
    for mode in MODES:
        report = check(planter.output, mode)
        assert fault in {finding.fault for finding in report.findings}, shown(report)
    report = check(planter.output, "full")
    for row in (1, 2):
        require(report, Fault.ROWS_DIFFER, planter.shard_path(0, 1), row * 64)
    [first, second] = [finding for finding in report.findings if finding.fault is Fault.ROWS_DIFFER]
    assert (first.expected, first.found) == ("row 6 of the stream", "the tokens of row 7 of the stream")
    assert (second.expected, second.found) == ("row 7 of the stream", "the tokens of row 6 of the stream")


def test_two_swapped_rows_far_from_each_other_are_found(planter: RowPlanter) -> None:
    def change(shards: list[RowShard]) -> None:
        shards[0].rows[1], shards[2].rows[2] = shards[2].rows[2], shards[0].rows[1]

    planter.change = change
    planter.write()
    report = check(planter.output, "full")
    require(report, Fault.ROWS_DIFFER, planter.shard_path(0, 0), 64)
    require(report, Fault.ROWS_DIFFER, planter.shard_path(0, 2), 128)


def test_a_row_that_is_there_twice_is_found(planter: RowPlanter) -> None:
    """In place of another one."""

    def change(shards: list[RowShard]) -> None:
        shards[1].rows[2] = list(shards[1].rows[1])

    planter.change = change
    planter.write()
    report = check(planter.output, "full")
    require(report, Fault.ROWS_DIFFER, planter.shard_path(0, 1), 128)
    [finding] = [finding for finding in report.findings if finding.fault is Fault.ROWS_DIFFER]
    assert finding.found == "the tokens of row 6 of the stream"
    assert report.tokens - report.tokens_compared == 64


def test_a_row_that_was_put_in_is_found(planter: RowPlanter) -> None:
    """A copy of the row before it, with parts of its own; everything behind it is a row later."""

    def change(shards: list[RowShard]) -> None:
        rows, parts = shards[-1]
        rows.insert(1, list(rows[0]))
        later = [part._replace(row=part.row + 1) for part in parts if part.row >= 1]
        parts[:] = [*(part for part in parts if part.row == 0), *later]
        parts += [part._replace(row=1) for part in parts if part.row == 0]
        parts.sort(key=lambda part: (part.row, part.start))

    planter.change = change
    planter.write()
    number = len(planter.shards_of(0)) - 1
    for mode in MODES:
        faults = {(f.fault, f.path) for f in check(planter.output, mode).findings}
        assert (Fault.PARTS_WRONG, planter.parts_path(0, number)) in faults
        assert Fault.TABLES_DISAGREE in {fault for fault, _ in faults}


def _padded(planter: RowPlanter) -> tuple[int, int, int]:
    """Shard, row and column of the first padding of the last row that has some."""
    for number in reversed(range(len(planter.shards_of(0)))):
        for row, tokens in reversed(list(enumerate(planter.shards_of(0)[number].rows))):
            if tokens[-1] == PAD:
                return number, row, tokens.index(PAD)
    raise ValueError("no padding")


def test_text_in_place_of_padding_is_found(planter: RowPlanter) -> None:
    shard, row, column = _padded(planter)
    planter.change = lambda shards: shards[shard].rows[row].__setitem__(column + 1, 65)
    require_found(planter, Fault.PADDING_WRONG, planter.shard_path(0, shard), row * 64 + column + 1)


def test_padding_in_place_of_text_is_found(planter: RowPlanter) -> None:
    planter.change = lambda shards: shards[1].rows[2].__setitem__(7, PAD)
    require_found(planter, Fault.PADDING_WRONG, planter.shard_path(0, 1), 2 * 64 + 7)


def test_padding_with_another_id_is_found(planter: RowPlanter) -> None:
    def change(shards: list[RowShard]) -> None:
        for shard in shards:
            shard.rows[:] = [[256 if token == PAD else token for token in row] for row in shard.rows]

    planter.change = change
    shard, row, column = _padded(planter)
    require_found(planter, Fault.PADDING_WRONG, planter.shard_path(0, shard), row * 64 + column)


def test_padding_in_the_middle_of_its_scope_is_found(planter: RowPlanter) -> None:
    """The last token of a row is padding, and no part has it: tokens and parts agree."""
    parts = planter.shards_of(0)[1].parts
    number = max(i for i, part in enumerate(parts) if part.row == 1)
    assert parts[number].length > 1

    def change(shards: list[RowShard]) -> None:
        shards[1].rows[1][-1] = PAD
        shards[1].parts[number] = parts[number]._replace(length=parts[number].length - 1)

    planter.change = change
    require_found(planter, Fault.PADDING_WRONG, planter.parts_path(0, 1), 2 * 64)


def test_a_token_that_one_format_has_otherwise_is_found(planter: RowPlanter) -> None:
    for number, format in enumerate(FORMATS[1:], 1):
        tokens = np.array(planter.shards_of(0)[number].rows, dtype="<u2")
        tokens[1, 3] ^= 1
        planter.altered[format, number] = tokens
    planter.write()
    report = check(planter.output, "checksums")
    for number, format in enumerate(FORMATS[1:], 1):
        path = planter.shard_path(0, number).replace("npy/", f"{format.lower()}/").replace(".npy", SUFFIXES[format][0])
        require(report, Fault.FORMATS_DIFFER, path, 67)
    assert len(report.findings) == len(FORMATS) - 1, shown(report)


def test_a_wrong_position_is_found_by_the_source(planter: RowPlanter) -> None:
    """All parts of one document name a record between this one and the next, where none is."""
    part = planter.shards_of(0)[1].parts[_part(planter.shards_of(0)[1]) + 1]

    def change(shards: list[RowShard]) -> None:
        for shard in shards:
            shard.parts[:] = [
                each._replace(position=each.position + 1) if each[:2] == part[:2] else each for each in shard.parts
            ]

    planter.change = change
    require_found_by_source(planter, Fault.PARTS_WRONG, planter.parts_path(0, 1), part.row * 64 + part.start)
    report = check(planter.output, "sample")
    require(report, Fault.PARTS_WRONG, planter.parts_path(0, 1), part.row * 64 + part.start)
    assert [finding.position for finding in report.findings] == [part.position]


def test_documents_of_another_file_are_found_by_the_source(planter: RowPlanter) -> None:
    """The last document of a file is said to be of the file behind it, which has none."""
    assert planter.files[1]["tokens"] == [0]
    last = max(planter.documents, key=lambda document: (document.file == 0, document.position))
    moved: list[tuple[str, int]] = []

    def change(shards: list[RowShard]) -> None:
        for number, shard in enumerate(shards):
            for at, part in enumerate(shard.parts):
                if part[:2] == (last.position, 0):
                    shard.parts[at] = part._replace(file=1)
                    moved.append((planter.parts_path(0, number), part.row * 64 + part.start))

    planter.change = change
    planter.write()
    fault = Fault.ROWS_DIFFER if planter.by_file else Fault.PARTS_WRONG
    require(check(planter.output, "full"), fault, *moved[0])


def test_a_border_between_documents_that_was_moved_is_found(source: Path, tmp_path: Path) -> None:
    """Without delimiters only the source tells."""
    planter = RowPlanter(made(source, tmp_path / "out", position="None"))
    number = _part(planter.shards_of(0)[1])
    first, second = planter.shards_of(0)[1].parts[number : number + 2]
    assert second.offset == 0

    def change(shards: list[RowShard]) -> None:
        shards[1].parts[number] = first._replace(length=first.length + 1)
        shards[1].parts[number + 1] = second._replace(start=second.start + 1, length=second.length - 1)
        for shard in (1, 2):
            shards[shard].parts[:] = [
                part._replace(offset=part.offset - 1) if part.offset and part[:2] == second[:2] else part
                for part in shards[shard].parts
            ]

    planter.change = change
    token = first.row * 64 + first.start
    require_found_by_source(planter, Fault.PARTS_WRONG, planter.parts_path(0, 1), token)


def test_a_delimiter_that_no_part_explains_is_found(planter: RowPlanter) -> None:
    """One in place of text, and text in place of one."""
    part = planter.shards_of(0)[1].parts[_part(planter.shards_of(0)[1])]
    token = part.row * 64 + part.start
    planter.change = lambda shards: shards[1].rows[part.row].__setitem__(part.start, 256)
    require_found(planter, Fault.DELIMITER_WRONG, planter.shard_path(0, 1), token)
    end = part.start + part.length - 1
    planter.change = lambda shards: shards[1].rows[part.row].__setitem__(end, 65)
    require_found(planter, Fault.DELIMITER_WRONG, planter.shard_path(0, 1), part.row * 64 + end)


def test_a_delimiter_that_stands_elsewhere_is_found(planter: RowPlanter) -> None:
    """It and the token before it are in each other's place."""
    part = planter.shards_of(0)[1].parts[_part(planter.shards_of(0)[1])]
    end = part.start + part.length - 1

    def change(shards: list[RowShard]) -> None:
        row = shards[1].rows[part.row]
        row[end - 1], row[end] = row[end], row[end - 1]

    planter.change = change
    require_found(planter, Fault.DELIMITER_WRONG, planter.shard_path(0, 1), part.row * 64 + end - 1)


def test_a_file_that_does_not_begin_a_new_row_is_found(source: Path, tmp_path: Path) -> None:
    planter = RowPlanter(made(source, tmp_path / "out", scope="File"))
    first = next(part for shard in planter.shards_of(0) for part in shard.parts if part.file == 2)
    assert first.start == 0
    planter.by_file = False
    shard, part = next((n, part) for n, s in enumerate(planter.shards_of(0)) for part in s.parts if part.file == 2)
    assert part.start > 0
    require_found(planter, Fault.ROWS_DIFFER, planter.parts_path(0, shard), part.row * 64 + part.start)
    [table] = [f for f in check(planter.output, "checksums").findings if f.fault is Fault.TABLES_DISAGREE]
    assert table.expected.startswith("rows of all files in stream 0: ")


def test_faults_of_documents_are_found_in_rows(planter: RowPlanter) -> None:
    numbers = [number for number, document in enumerate(planter.documents) if len(document.tokens) > 9]
    changed, lost = numbers[len(numbers) // 4], numbers[len(numbers) // 2]
    document = planter.documents[changed]
    tokens = list(document.tokens)
    tokens[4] ^= 1
    planter.documents[changed] = dataclasses.replace(document, tokens=tuple(tokens))
    gone = planter.documents.pop(lost)
    planter.write()
    report = check(planter.output, "checksums")
    assert not report.findings, shown(report)
    found = [(finding.fault, finding.position) for finding in check(planter.output, "full").findings]
    assert (Fault.TOKENS_DIFFER, document.position) in found
    assert (Fault.DOCUMENT_LOST, gone.position) in found


# --- damage


@pytest.mark.sampled(7)
@pytest.mark.parametrize("format", [*FORMATS, "Parts"])
@pytest.mark.parametrize("damage", ["delimiter", "cut", "remove", "header"])
def test_damage_of_any_file_is_found_and_a_rerun_writes_that_file_alone(
    source: Path, whole: Path, tmp_path: Path, format: str, damage: str
) -> None:
    scope = read_index(whole)["data"]["output"]["sequence"]["scope"]
    output = made(source, tmp_path / "out", scope=scope)
    suffix = SUFFIXES.get(format, [".npy"])[-1]
    victim = output / format.lower() / f"train/train_000001{suffix}"
    before = {path: (path.read_bytes(), path.stat().st_ino) for path in output.rglob("train_00000*.*")}
    data = bytearray(victim.read_bytes())
    if damage == "remove":
        victim.unlink()
    elif damage == "cut":
        victim.write_bytes(data[:-2])
    else:
        change = slice(-8, -6) if damage == "delimiter" else slice(2, 3)
        data[change] = b"\x00\x01" if damage == "delimiter" else bytes([data[2] ^ 1])
        assert data != before[victim][0]
        victim.write_bytes(data)
    expected = {"remove": Fault.SHARD_MISSING, "cut": Fault.SHARD_SIZE}.get(damage, Fault.SHARD_CHECKSUM)
    for mode in MODES:
        report = check(output, mode)
        found = {finding.fault for finding in report.findings if finding.path == str(victim.relative_to(output))}
        assert expected in found, shown(report)
        if mode is VerifyMode.CHECKSUMS:  # what damaged bytes say of padding and delimiters is no news
            assert not {finding.fault for finding in report.findings} & {Fault.PADDING_WRONG, Fault.DELIMITER_WRONG}
        if damage == "header" and format != "Raw":
            assert Fault.SHARD_HEADER in found
        assert "new rerunToken" in report.next_step
    made(source, output, scope=scope, rerunToken="again")
    for path, (content, inode) in before.items():
        assert path.read_bytes() == content
        if path != victim:
            assert path.stat().st_ino == inode
    report = check(output)
    assert not report.findings, shown(report)


def test_a_shard_that_is_missing_is_one_finding(planter: RowPlanter) -> None:
    victim = planter.shard_path(0, 1)
    (planter.output / victim).unlink()
    for mode in MODES:
        report = check(planter.output, mode)
        assert [(f.fault, f.path) for f in report.findings] == [(Fault.SHARD_MISSING, victim)], shown(report)


def test_a_file_beside_the_parts_is_found(planter: RowPlanter) -> None:
    path = planter.output / "parts/train/train_000999.npy"
    path.write_bytes(b"another")
    [finding] = check(planter.output, "checksums").findings
    assert (finding.fault, finding.path) == (Fault.UNEXPECTED_FILE, "parts/train/train_000999.npy")


# --- the borders of shards, and counts


@pytest.fixture
def rows_of_documents(tmp_path: Path) -> RowPlanter:
    """Each of 25 documents fills a row, with its delimiter."""
    (tmp_path / "source").mkdir()
    lines = [json.dumps({"text": f"{number:063}"}) + "\n" for number in range(25)]
    (tmp_path / "source/a.jsonl").write_text("".join(lines))
    return RowPlanter(made(tmp_path / "source", tmp_path / "out"))


def test_an_end_token_before_a_document_that_goes_on_is_found(rows_of_documents: RowPlanter) -> None:
    """At the end of a shard."""

    def change(shards: list[RowShard]) -> None:
        last, first = shards[0].parts[-1], shards[1].parts[0]
        shards[1].parts[0] = first._replace(position=last.position, offset=64)

    rows_of_documents.change = change
    require_found(rows_of_documents, Fault.PARTS_WRONG, rows_of_documents.parts_path(0, 1), 0)


@pytest.mark.parametrize("shard", [0, 4])
def test_a_last_document_without_its_end_token_is_found(rows_of_documents: RowPlanter, shard: int) -> None:
    """Of a shard, and of the stream."""
    rows_of_documents.change = lambda shards: shards[shard].rows[-1].__setitem__(-1, 65)
    rows_of_documents.write()
    report = check(rows_of_documents.output, "checksums")
    if shard == 4:
        require(report, Fault.DELIMITER_WRONG, rows_of_documents.shard_path(0, 4), 5 * 64 - 1)
    else:
        require(report, Fault.PARTS_WRONG, rows_of_documents.parts_path(0, 1), 0)


def test_a_table_with_other_counts_than_the_parts_is_found(planter: RowPlanter) -> None:
    claim = planter.facts.streams[0][1]
    assert check_shard(planter.facts, claim).findings == ()
    for change in ({"documents": claim.documents + 1}, {"tokens": claim.tokens - 1}):
        [finding] = check_shard(planter.facts, dataclasses.replace(claim, **change)).findings
        assert (finding.fault, finding.path) == (Fault.PARTS_WRONG, planter.parts_path(0, 1))


# --- other datasets of rows


@pytest.fixture
def pair(source: Path, tmp_path: Path) -> RowPlanter:
    """Rows of documents with a begin and an end token, which is the padding, too."""
    delimiter = {"begin": "<|endofprompt|>", "end": "<|endoftext|>"}
    tokenizer = {"name": "cl100k_base", "delimiter": delimiter}
    layout = {"sequence": {"length": 64}, "shards": {"sequences": 5}, "splits": SPLITS["shares"]}
    run_job(make_job(source, tmp_path / "out", tokenizer=tokenizer, output=layout), executor=inline())
    return RowPlanter(tmp_path / "out")


def test_rows_with_begin_and_end_tokens_pass(pair: RowPlanter) -> None:
    assert (pair.facts.begin_id, pair.facts.end_id) == (100_276, 100_257)
    for mode in MODES:
        report = check(pair.output, mode)
        assert not report.findings, shown(report)


@pytest.mark.parametrize(("token", "which"), [(100_276, "first"), (100_257, "last")])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_begin_or_end_token_at_a_wrong_place_is_found_in_rows(
    pair: RowPlanter, token: int, which: str, is_there: bool
) -> None:
    """One is missing; one stands in place of text."""
    shard = pair.shards_of(1)[1]
    part = next(
        part for part in shard.parts if part.row == 1 and part.offset == 0 and 8 < part.length < 64 - part.start
    )
    end = part.start + part.length - 1
    column = part.start + 3 if is_there else part.start if which == "first" else end

    def change_second_stream(shards: list[RowShard]) -> None:
        if shards[1].parts == shard.parts:
            shards[1].rows[1][column] = token if is_there else 65

    pair.change = change_second_stream
    pair.write()
    for mode in MODES:
        require(check(pair.output, mode), Fault.DELIMITER_WRONG, pair.shard_path(1, 1), 64 + column)


def test_processes_find_the_same_as_one(planter: RowPlanter) -> None:
    planter.change = lambda shards: shards[2].rows.__setitem__(1, list(shards[2].rows[0]))
    del planter.documents[next(n for n, each in enumerate(planter.documents) if each.file == 4 and each.tokens[8:])]
    planter.write()
    alone, together = (
        verify(planter.output, mode="full", processes=processes, sample_one_in=10) for processes in (1, 2)
    )
    assert alone == together
    assert {finding.fault for finding in alone.findings} >= {Fault.DOCUMENT_LOST, Fault.ROWS_DIFFER}


def test_files_that_are_left_out_and_unusable_documents_pass(source: Path, tmp_path: Path) -> None:
    """In scope File a file that is left out takes no row."""
    folder = tmp_path / "source"
    shutil.copytree(source, folder)
    with (folder / "0.jsonl").open("a") as file:
        file.write('{"text": 7}\n{"text": "after it"}\n')
    (folder / "2b.jsonl.zst").write_bytes(zstd.compress(b'{"text": "a"}\n' * 999)[:-9])
    for scope in ("Stream", "File"):
        output = made(folder, tmp_path / scope, scope=scope, maxQuarantined=1, maxCorruptFiles=1, rangeBytes=900)
        for mode in MODES:
            report = check(output, mode)
            assert not report.findings, shown(report)
        assert (report.quarantined, report.files_dropped) == (1, 1)


def test_the_command_line_names_faults_of_rows(planter: RowPlanter) -> None:
    planter.change = lambda shards: shards[1].rows[2].__setitem__(7, PAD)
    planter.write()
    done = run_command([str(TOKJOB), "verify", str(planter.output), "--mode", "checksums", "--processes", "1"])
    assert done.returncode == 4
    path = planter.shard_path(0, 1)
    expected = f"PaddingWrong: {path} token 135; "
    assert expected in done.stderr + done.stdout
    assert "expected a token of a document, found padding, id 300" in done.stderr + done.stdout
    digest = run_command([str(TOKJOB), "verify", str(planter.output), "--digest"])
    assert (digest.returncode, digest.stdout) == (4, "")
