"""WebDataset: rows as files in tars, with a list of the shards in each folder, written by a library that may change."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.corpus import json_lines, take_documents
from support.engine.inline import inline
from support.faults.plant_rows import RowPlanter
from support.forked_commands import TOKJOB
from support.format_oracle import read_tar
from support.runs import command, difference, make_job, read_index, run_command
from tokenization_worker import open_dataset, run_job, verify
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.errors import ChangedError
from tokenization_worker.events import Warned
from tokenization_worker.formats import registry, webdataset
from tokenization_worker.inspect.clean import clean_output
from tokenization_worker.inspect.status import read_status
from tokenization_worker.pipelines.tokenize import commit
from tokenization_worker.verification.report import Fault

SPLITS = [{"name": "test", "share": "25%"}, {"name": "train"}]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    texts = [*take_documents(40_000), "", "a"]
    (folder / "a.jsonl").write_bytes(json_lines(texts[::2]))
    (folder / "b.jsonl").write_bytes(json_lines(texts[1::2]))
    return folder


def job_of(source: Path, output: Path, /, formats: list[str] | None = None, **fields: Any) -> TokenizationJob:
    layout = {
        "formats": formats or ["WebDataset"],
        "path": "{split}/shard_{index:08d}",
        "sequence": {"length": 65, "scope": "File"},
        "shards": {"sequences": 20},
        "splits": SPLITS,
        **fields.pop("output", {}),
    }
    return make_job(source, output, output=layout, **fields)


def made(source: Path, output: Path, /, formats: list[str] | None = None, **fields: Any) -> Path:
    run_job(job_of(source, output, formats, **fields), executor=inline())
    return output


@pytest.fixture(scope="module")
def whole(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(source, tmp_path_factory.mktemp("whole") / "out")


@pytest.fixture
def dataset(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "out")


@pytest.fixture
def another_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Calling it makes this process compress otherwise, as with another zlib."""

    def change() -> None:
        monkeypatch.setattr(webdataset, "_LEVEL", 9)
        registry.fingerprint.cache_clear()

    yield change
    monkeypatch.undo()
    registry.fingerprint.cache_clear()


def test_python_reads_rows_in_order_and_the_list_names_all_shards(whole: Path) -> None:
    for split in ("test", "train"):
        shards = sorted((whole / split).glob("*.tar"))
        assert len(shards) > 2
        lines = [json.loads(line) for line in (whole / split / "manifest.jsonl").read_bytes().splitlines()]
        assert [line["shard"] for line in lines] == [path.stem for path in shards]
        rows: list[list[int]] = []
        for number, (path, line) in enumerate(zip(shards, lines, strict=True)):
            members = read_tar(path)
            assert len(members) == line["num_sequences"]
            assert [name[:17] for name in members] == [f"{number:08d}_{row:08d}" for row in range(len(members))]
            assert all(name.count(".") == 2 and name.endswith(".json.gz") for name in members)
            rows += members.values()
        found = open_dataset(whole)[split].rows
        assert np.array_equal(np.array(rows), found[:])
        firsts = [found.parts(row)[0] for row in range(len(found))]
        names = [name for path in shards for name in read_tar(path)]
        places = [f"{part['file']:x}-{part['position']:x}-{part['offset']:x}.json.gz" for part in firsts]
        assert [name[18:] for name in names] == places


def test_the_loader_reads_whole_shards_and_takes_a_format_with_random_access_where_there_is_one(
    source: Path, whole: Path, tmp_path: Path
) -> None:
    both = open_dataset(made(source, tmp_path / "out", ["WebDataset", "Raw"]))
    alone = pickle.loads(pickle.dumps(open_dataset(whole)))
    for name in alone:
        assert {shard.format for shard in both[name].shards} == {"Raw"}
        assert {shard.format for shard in alone[name].shards} == {"WebDataset"}
        assert np.array_equal(both[name][:], alone[name][:])
        assert np.array_equal(both[name].rows[-1], alone[name].rows[-1])
        documents = zip(both[name].read_documents(), alone[name].read_documents(), strict=True)
        assert all(np.array_equal(a, b) for a, b in documents)
        assert not alone[name].shards[0].open().flags.writeable


def test_a_shard_is_decoded_once_for_many_rows(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    read = webdataset.TarReader.open

    def counted(self: webdataset.TarReader) -> Any:
        opened.append(1)
        return read(self)

    monkeypatch.setattr(webdataset.TarReader, "open", counted)
    rows = open_dataset(whole)["train"].rows
    for row in range(len(rows)):
        rows[row]
    assert len(opened) == len(list((whole / "train").glob("*.tar")))


def without_its_first_row(data: bytes) -> bytes:
    """A whole tar of the same size, with blank blocks at its end."""
    size = int(data[124:135], 8)
    return data[512 + size + -size % 512 :].ljust(len(data), b"\0")


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "no tar": lambda data: b"x" * len(data),
    "no gzip": lambda data: data[:512] + b"x" * 20 + data[532:],
    "a row is gone": without_its_first_row,
    "a block is gone": lambda data: data[1024:],
    "cut": lambda data: data[:-2048],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_corrupt_tar_is_an_error_and_a_finding(damage: Callable[[bytes], bytes], dataset: Path) -> None:
    victim = dataset / "train/shard_00000001.tar"
    victim.write_bytes(damage(victim.read_bytes()).ljust(0))
    with pytest.raises(Exception, match=r"train/shard_00000001\.tar has") as caught:
        open_dataset(dataset)["train"].rows[25]
    assert type(caught.value).__name__ == "DataError"
    findings = verify(dataset, mode="checksums").findings
    assert {finding.path for finding in findings} >= {"train/shard_00000001.tar"}


def test_a_row_with_the_name_of_another_is_found(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All checksums, tables and the index agree with it."""
    monkeypatch.setattr("support.faults.plant_rows.places_of", lambda shard: [(7, 7, 7)] * len(shard.rows))
    RowPlanter(dataset).write()
    findings = verify(dataset, mode="checksums").findings
    assert {finding.fault for finding in findings} == {Fault.SHARD_HEADER}
    assert "00000000_00000000_0-0-0.json.gz as name of row 0" in findings[0].expected


def test_a_planter_that_knows_nothing_of_our_writers_writes_the_same_bytes(dataset: Path, whole: Path) -> None:
    RowPlanter(dataset).write()
    assert difference(dataset, whole) is None
    assert (dataset / "train/manifest.jsonl").read_bytes() == (whole / "train/manifest.jsonl").read_bytes()
    assert verify(dataset, mode="full", processes=1).findings == ()


@pytest.mark.parametrize("change", ["gone", "other"])
def test_a_list_of_shards_that_is_lost_is_found_and_written_again(change: str, source: Path, dataset: Path) -> None:
    victim = dataset / "train/manifest.jsonl"
    content = victim.read_bytes()
    shards = {path: path.stat().st_ino for path in dataset.rglob("*.tar")}
    if change == "gone":
        victim.unlink()
    else:
        victim.write_bytes(content.replace(b'{"num_sequences":20', b'{"num_sequences":21', 1))
    report = verify(dataset, mode="checksums")
    assert report.findings[0].fault is Fault.FOLDER_INDEX_WRONG
    assert report.findings[0].path == "train/manifest.jsonl"
    assert "rerunToken" in report.next_step
    status = read_status(dataset)
    assert (status.phase, status.reason) == ("Damaged", "DatasetIncomplete")
    assert status.message.endswith("train/manifest.jsonl")
    events: list[Any] = []
    run_job(job_of(source, dataset, rerunToken="again"), executor=inline(), on_progress=events.append)
    assert any(
        isinstance(each, Warned) and "train/manifest.jsonl was missing or changed" in str(each) for each in events
    )
    assert victim.read_bytes() == content
    assert {path: path.stat().st_ino for path in dataset.rglob("*.tar")} == shards
    assert verify(dataset, mode="checksums").findings == ()


def test_the_index_names_the_lists_of_shards(whole: Path) -> None:
    entries = read_index(whole)["folderIndexes"]
    assert [entry["path"] for entry in entries] == ["test/manifest.jsonl", "train/manifest.jsonl"]
    assert {entry["format"] for entry in entries} == {"WebDataset"}
    assert [entry["bytes"] for entry in entries] == [(whole / entry["path"]).stat().st_size for entry in entries]


def test_a_foreign_list_of_shards_is_never_replaced(source: Path, whole: Path, tmp_path: Path) -> None:
    """Neither one that is there before the run, nor one that comes meanwhile."""
    output = tmp_path / "out"
    (output / "train").mkdir(parents=True)
    foreign = output / "train/manifest.jsonl"
    foreign.write_bytes(b"mine")
    done = run_command(command(job_of(source, output), tmp_path))
    assert done.returncode == 3
    assert f"OutputConflict: {foreign} has a name that output.path gives to shards" in done.stderr
    foreign.unlink()

    def comes_meanwhile(task: object) -> None:
        foreign.parent.mkdir(exist_ok=True, parents=True)
        foreign.write_bytes(b"mine")

    with pytest.raises(ChangedError, match=r"train/manifest\.jsonl exists and differs") as caught:
        run_job(job_of(source, output), executor=inline(comes_meanwhile))
    assert caught.value.reason == "OutputConflict"
    assert foreign.read_bytes() == b"mine"
    foreign.unlink()
    made(source, output)
    assert difference(output, whole) is None


def test_a_run_that_stops_before_its_index_goes_on_and_clean_removes_its_lists(
    source: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    output = tmp_path / "out"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(commit, "seal_epoch", stop)
        made(source, output)
    assert (output / "train/manifest.jsonl").exists()
    shutil.copytree(output, tmp_path / "copy")
    made(source, output)
    assert difference(output, whole) is None
    shutil.rmtree(tmp_path / "copy/_tokenization/ledger/0/shards")  # no receipt names the tars
    foreign = tmp_path / "copy/test/shard_00000000.tar"
    foreign.write_bytes(bytes(foreign.stat().st_size))
    cleaned = clean_output(tmp_path / "copy", dry_run=False)
    assert [path for path, _ in cleaned.stays] == ["test/shard_00000000.tar"]
    assert [path.name for path in tmp_path.joinpath("copy").rglob("*") if path.is_file()] == ["shard_00000000.tar"]


def test_another_library_stops_a_run_and_a_rerun(
    source: Path, dataset: Path, tmp_path: Path, another_library: Callable[[], None]
) -> None:
    """Its shards would have other bytes than those that exist."""

    def stop(task: object) -> None:
        raise KeyboardInterrupt

    output = tmp_path / "half"
    with pytest.raises(KeyboardInterrupt):
        run_job(job_of(source, output), executor=inline(stop))
    another_library()
    for place, fields in ((output, {}), (dataset, {"rerunToken": "again"})):
        with pytest.raises(ChangedError, match=rf"^WriterChanged: {place}: zlib [\d.]+\S* of this process") as caught:
            run_job(job_of(source, place, **fields), executor=inline())
        assert "writes other WebDataset files" in caught.value.message
        assert "or write to another output.uri" in caught.value.next_step
    assert verify(dataset, mode="full", processes=1).findings == ()
    with pytest.raises(ChangedError, match=r"^OutputConflict: .*output.shards.sequences: the job says 30") as caught:
        run_job(job_of(source, output, output={"shards": {"sequences": 30}}), executor=inline())
    with pytest.raises(ChangedError, match=r"^OutputConflict: .*output.formats: the job says \[Npy\]") as caught:
        run_job(job_of(source, output, ["Npy"]), executor=inline())
    assert "writers" not in caught.value.message


def test_a_worker_with_another_library_writes_nothing(
    source: Path, tmp_path: Path, another_library: Callable[[], None]
) -> None:
    def change(task: object) -> None:
        another_library()

    with pytest.raises(ChangedError, match=r"^WriterChanged: "):
        run_job(job_of(source, tmp_path / "out"), executor=inline(change))
    assert not list((tmp_path / "out").rglob("*.tar"))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "without rows": (
        {"sequence": None, "shards": {"tokens": 1000}},
        "WebDataset stores rows: add output.sequence with the length of a row",
    ),
    "two splits in a folder": (
        {"path": "{split}_{index:04d}"},
        "WebDataset has an index in each folder, which lists the shards of one split: name the folder by the split "
        "(and the group) and the file by the number, such as {split}/shard_{index:08d}",
    ),
    "a folder a shard": ({"path": "{split}/{index:04d}/shard"}, "WebDataset has an index in each folder"),
    "a suffix": ({"path": "{split}/{index:04d}.tar"}, "each format adds its suffix: leave"),
}


@pytest.mark.parametrize(("output", "words"), REFUSED.values(), ids=REFUSED)
def test_a_layout_that_cannot_be_is_refused(output: dict[str, Any], words: str, source: Path, tmp_path: Path) -> None:
    job = job_of(source, tmp_path / "out").to_manifest()
    job["spec"]["output"] |= output
    job["spec"]["output"] = {key: value for key, value in job["spec"]["output"].items() if value is not None}
    manifest = tmp_path / "job.json"
    manifest.write_text(json.dumps(job), encoding="utf-8")
    done = run_command([str(TOKJOB), "run", str(manifest)])
    assert done.returncode == 2
    assert words in done.stderr
    assert not (tmp_path / "out").exists()
