"""Companions and single files of another format in a folder: refused with the glob that leaves them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command_line import Bench, read_table
from support.faults.hostile import documents, tar_of
from tokenization_worker.api.data import SourceFormat
from tokenization_worker.errors import DataError
from tokenization_worker.planning import prepare as planning
from tokenization_worker.planning.source_check import count_formats, find_strange, suffix_of
from tokenization_worker.storage.source_file import SourceFile


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def files(*names: str, folder: str = "/data/") -> list[SourceFile]:
    return [SourceFile(folder + name, 10, "v") for name in names]


def many(pattern: str, count: int) -> list[str]:
    return [pattern.replace("#", f"{n:03d}") for n in range(count)]


BATCH = many("part-#.jsonl.zst", 21)
STRANGE = {
    "a readme": (["/data"], ["README.md", *BATCH], ["README.md"], "/data/*.jsonl.zst"),
    "a readme beside one file": (["/data"], ["README.md", "a.jsonl"], ["README.md"], "/data/*.jsonl"),
    "a glob": (["/data/*"], ["MANIFEST.json", *BATCH], ["MANIFEST.json"], "/data/*.jsonl.zst"),
    "a glob with a prefix": (["/data/p*"], ["p.md", *BATCH], ["p.md"], "/data/p*.jsonl.zst"),
    "infos of a dataset": (
        ["/data"],
        ["dataset_infos.json", *many("#.parquet", 4)],
        ["dataset_infos.json"],
        "*.parquet",
    ),
    "no suffix": (["/data"], ["LICENSE", *BATCH], ["LICENSE"], "/data/*.jsonl.zst"),
    "below folders": (["/data"], ["a/README.md", "a/x.jsonl", "b/y.jsonl"], ["a/README.md"], "/data/**/*.jsonl"),
    "two suffixes": (["/data"], ["README.md", "a.jsonl", "b.jsonl.gz"], ["README.md"], "/data/*.jsonl.gz"),
    "another format": (["/data"], ["x.txt", *BATCH], ["x.txt"], "/data/*.jsonl.zst"),
    "a table": (["/data"], ["x.csv", *BATCH], ["x.csv"], "/data/*.jsonl.zst"),
    "code among texts": (["/data"], ["package.json", *many("#.md", 20)], ["package.json"], "/data/*.md"),
    "companions among JSON that are none by their suffix": (
        ["/data"],
        ["README.md", "LICENSE", "config.json", *many("#.json", 60)],
        ["README.md", "LICENSE"],
        "/data/*.json",
    ),
    "the kind of a pattern, and not of its companions": (
        ["/data"],
        [*many("#/config.json", 60), "a/a.parquet", "b/b.parquet"],
        many("#/config.json", 60),
        "/data/**/*.parquet",
    ),
    "a companion among JSON": (["/data"], ["dataset_infos.json", *many("#.json", 9)], ["dataset_infos.json"], "move"),
}


@pytest.mark.parametrize(("uris", "names", "strange", "step"), STRANGE.values(), ids=STRANGE.keys())
def test_strange_files_are_named_with_the_way_to_leave_them_out(
    uris: list[str], names: list[str], strange: list[str], step: str
) -> None:
    error = find_strange(uris, SourceFormat.AUTO, files(*sorted(names)))
    assert error is not None
    assert error.reason == "SourceInvalid"
    assert f"{len(names) - len(strange)} file" in error.message
    for name in strange:
        assert name.rpartition("/")[2] in error.message
    assert step in str(error.next_step)


FINE = {
    "JSON documents with the names of companions": (
        ["/data"],
        [f"{name}.json" for name in ("config", "state", "authors", "metadata", "License", "notice", *many("#", 60))],
    ),
    "one format": (["/data"], BATCH),
    "compressed in several ways": (["/data"], ["a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.ndjson"]),
    "texts": (["/data"], ["README.md", "LICENSE.txt", *many("#.txt", 9), *many("#.md", 9)]),
    "only companions": (["/data"], ["README.md", "LICENSE"]),
    "Parquet among JSON lines": (["/data"], ["x.parquet", *BATCH]),
    "half and half": (["/data"], [*many("#.jsonl", 5), *many("#.txt", 5)]),
    "more than one in ten": (["/data"], [*many("#.jsonl", 20), *many("#.txt", 3)]),
    "too few to tell": (["/data"], ["a.jsonl", "b.txt"]),
    "no known suffix": (["/data"], ["README.md", *many("part-#", 9)]),
    "two patterns": (["/data/*.jsonl.zst", "/data/*.md"], [*BATCH, "README.md"]),
    "named outright": (["/data/README.md", "/data/*.zst"], ["README.md", *BATCH]),
}


@pytest.mark.parametrize(("uris", "names"), FINE.values(), ids=FINE.keys())
def test_a_source_that_may_be_meant_is_not_refused(uris: list[str], names: list[str]) -> None:
    assert find_strange(uris, SourceFormat.AUTO, files(*names)) is None


def test_every_file_is_a_text_where_the_format_says_so() -> None:
    assert find_strange(["/data"], SourceFormat.TEXT, files("README.md", *BATCH)) is None
    assert find_strange(["/data"], SourceFormat.JSONL, files("README.md", *BATCH)) is not None


def test_only_the_pattern_with_strange_files_is_named() -> None:
    found = files(*BATCH) + files("README.md", *many("#.parquet", 5), folder="/more/")
    error = find_strange(["/data", "/more"], SourceFormat.AUTO, found)
    assert error is not None and "'/more'" in error.message and "/more/*.parquet" in str(error.next_step)


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("a.jsonl.zst", ".jsonl.zst"),
        ("a.b.jsonl", ".jsonl"),
        ("A.JSONL.GZ", ".jsonl.gz"),
        ("LICENSE", ""),
        ("a.gz", ".gz"),
    ],
)
def test_a_suffix_is_format_and_compression(name: str, suffix: str) -> None:
    assert suffix_of(f"gs://bucket/folder.d/{name}") == suffix


def test_formats_are_counted_with_names() -> None:
    assert count_formats(files("README.md", *BATCH)) == [
        (".jsonl.zst", 21, ("part-000.jsonl.zst", "part-001.jsonl.zst", "part-002.jsonl.zst")),
        (".md", 1, ("README.md",)),
    ]


def test_a_companion_is_refused_by_plan_and_run_with_a_glob_that_works(bench: Bench) -> None:
    (bench.source / "README.md").write_text("# About this corpus\n")
    for command in ("plan", "run"):
        done = bench.tokjob(command, "job.yaml")
        assert done.code == 2
        assert "SourceInvalid" in done.err and "README.md" in done.err and "src/*.jsonl" in done.err
    done = bench.tokjob("plan", "job.yaml", "--source.uris", "[src/*.jsonl]")
    assert done.code == 0, done.err
    assert "formats    3 .jsonl" in done.out
    done = bench.tokjob("plan", "job.yaml", "--source.uris", "[src/*.jsonl, src/README.md]")
    assert "formats    3 .jsonl: a.jsonl, b.jsonl, c.jsonl; 1 .md: README.md" in done.out, done.err


def test_a_run_that_has_begun_with_a_strange_file_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    (bench.source / "README.md").write_text("# About this corpus\n")
    with monkeypatch.context() as patch:
        patch.setattr(planning, "find_strange", lambda *_: None)
        bench.stop()
    with pytest.raises(DataError, match="QuarantineExceeded"):
        bench.run()
    bench.run(more="  maxQuarantined: 1\n")
    rows = read_table(bench.output, "_tokenization/files.jsonl.zst")
    assert [row["uri"].rpartition("/")[2] for row in rows] == ["README.md", "a.jsonl", "b.jsonl", "c.jsonl"]


def test_a_tar_stops_the_run_by_name(bench: Bench) -> None:
    (bench.source / "more.jsonl").write_bytes(tar_of(documents(["a document"])))
    done = bench.tokjob("run", "job.yaml", "--source.format", "Text")
    assert done.code == 4
    assert (
        "UnsupportedFile" in done.err and "more.jsonl" in done.err and f"tar -xf {bench.source}/more.jsonl" in done.err
    )
