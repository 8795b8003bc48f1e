"""Shuffled documents: shards are those of a loop over all documents, however the run is cut, killed or repaired."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import blake2b, sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from support.engine.inline import inline, run_with_stops
from support.faults.plant import Planter
from support.runs import Running, command, difference, make_job, read_index
from support.shuffle_oracle import Document, Shard, shuffle
from tokenization_worker import open_dataset, run_job, verify
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.dataset.split import Split
from tokenization_worker.engine.task import ProductLost, WorkerState
from tokenization_worker.formats.sidecar import ScatteredDocuments, ShardDocuments
from tokenization_worker.inspect.clean import clean_output
from tokenization_worker.inspect.show import show_documents
from tokenization_worker.output import layout
from tokenization_worker.pipelines.tokenize.scatter_task import ScatterTask
from tokenization_worker.pipelines.tokenize.shard_builder import BuildTask
from tokenization_worker.planning import scattering
from tokenization_worker.verification.report import Fault

DELIMITER = 256
SHARD_TOKENS = 700
FILES = {"web": [40, 0, 25], "code": [1, 60], "books": [30]}
PATHS = {"joined": "{split}/{index:05d}", "apart": "{group}/{split}/{index:05d}"}
SPLITS: dict[str, list[dict[str, Any]]] = {
    "one": [{"name": "train"}],
    "leading": [{"name": "test", "shards": 2}, {"name": "train"}],
    "shares": [{"name": "test", "share": "25%"}, {"name": "train"}],
}


class Source(NamedTuple):
    """`documents`: text and place of each document of each group."""

    folder: Path
    documents: dict[str, list[tuple[str, int, int]]]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("source")
    chance = random.Random(31)
    documents: dict[str, list[tuple[str, int, int]]] = {}
    number = 0
    for order, (group, counts) in enumerate(FILES.items()):
        (folder / f"{order}-{group}").mkdir()
        documents[group] = []
        for size in counts:
            lines, position = [], 0
            for at in range(size):
                text = "" if at % 9 == 4 else "".join(chance.choices("abcä日 \n", k=chance.randrange(200)))
                documents[group].append((text, number, position))
                lines.append(json.dumps({"text": text}).encode() + b"\n")
                position += len(lines[-1])
            (folder / f"{order}-{group}" / f"{number}.jsonl").write_bytes(b"".join(lines))
            number += 1
    return Source(folder, documents)


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scattering, "LEAST_WINDOW_BYTES", 3000)


def job_of(source: Source, output: Path, /, *, seed: int = 5, **fields: Any) -> TokenizationJob:
    groups = [{"name": folder.name[2:], "uris": [str(folder)]} for folder in sorted(source.folder.iterdir())]
    blocks = {"source": {"uris": None, "groups": groups}, "tokenizer": {"name": "bytes"}}
    layout_of = {"shards": {"tokens": SHARD_TOKENS}, "shuffle": {"seed": seed}, **fields.pop("output", {})}
    return make_job(source.folder, output, blocks, output=layout_of, **fields)


def expected(source: Source, path: str, splits: str, delimiter: str, seed: int = 5) -> dict[str, Shard]:
    """The shards by path."""
    documents = source.documents
    runs = documents if path == "apart" else {"": [each for mine in documents.values() for each in mine]}
    shards: dict[str, Shard] = {}
    for group, mine in runs.items():
        streams = ["test", "train"] if splits == "shares" else ["train"]
        for stream in streams:
            units = [
                Document(file, position, tokens)
                for text, file, position in mine
                if (split_of(text) == stream or splits != "shares") and (tokens := tokens_of(text, delimiter))
            ]
            leading = 2 if splits == "leading" else 0
            for number, shard in enumerate(shuffle(units, seed, SHARD_TOKENS)):
                split, index = ("test", number) if number < leading else (stream, number - leading)
                shards[PATHS[path].format(group=group, split=split, index=index)] = shard
    return shards


def split_of(text: str) -> str:
    return "test" if int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") < 2**62 else "train"


def tokens_of(text: str, delimiter: str) -> list[int]:
    before, after = ([DELIMITER] if delimiter == side else [] for side in ("Before", "After"))
    return [*before, *text.encode(), *after]


def require_shards(output: Path, wanted: dict[str, Shard]) -> None:
    found = {path.relative_to(output).as_posix().removesuffix(".npy") for path in output.rglob("*.npy")}
    assert found == wanted.keys()
    for name, shard in wanted.items():
        assert np.load(output / f"{name}.npy").tolist() == shard.tokens, name
        *group, split, index = name.split("/")
        path = output / layout.documents_path(split, int(index), *group)
        data = path.read_bytes()
        sidecar = ScatteredDocuments.from_bytes(data, sha256(data).hexdigest(), str(path))
        places = zip(sidecar.files.tolist(), sidecar.positions.tolist(), sidecar.lengths.tolist(), strict=True)
        assert list(places) == shard.entries
        assert (sidecar.skipped, sidecar.continues) == (shard.skipped, shard.continues)


@pytest.mark.sampled(11)  # test_every_layout has each pair of values
@pytest.mark.parametrize("delimiter", ["Before", "After", "None"])
@pytest.mark.parametrize("splits", SPLITS)
@pytest.mark.parametrize("path", PATHS)
def test_shards_are_those_of_a_loop_over_documents(
    path: str, splits: str, delimiter: str, source: Source, tmp_path: Path
) -> None:
    """However the source is cut into ranges."""
    wanted = expected(source, path, splits, delimiter)
    output_of = {"splits": SPLITS[splits], "path": PATHS[path]}
    for cut in (300, 10**6):
        job = job_of(
            source,
            tmp_path / str(cut),
            output=output_of,
            rangeBytes=cut,
            tokenizer={"delimiter": {"position": delimiter}},
        )
        run_job(job, executor=inline())
        require_shards(tmp_path / str(cut), wanted)
    assert difference(tmp_path / "300", tmp_path / "1000000") is None
    assert read_index(tmp_path / "300")["formatVersion"] == 3


def test_documents_are_read_shown_and_located(source: Source, tmp_path: Path) -> None:
    output = tmp_path / "out"
    run_job(job_of(source, output, output={"splits": SPLITS["shares"], "path": PATHS["apart"]}), executor=inline())
    dataset = open_dataset(output)
    texts = {(file, position): text for mine in source.documents.values() for text, file, position in mine}
    files = [row["uri"] for row in dataset._files]
    read = [bytes(document.tolist()).decode() for part in ("test", "train") for document in documents_of(dataset[part])]
    assert sorted(read) == sorted(texts.values())
    split = dataset["train"]
    token = 0
    while token < len(split):
        (shown,) = show_documents(output, "train", token)
        assert shown.note == ""
        assert shown.position is not None
        assert shown.text == texts[files.index(shown.place.uri), shown.position]
        assert dataset.locate("train", token).uri == shown.place.uri
        token += shown.place.tokens
    several = show_documents(output, "train", 0, 9)
    assert [each.text for each in several] == [
        bytes(document.tolist()).decode() for document in islice(documents_of(split), 9)
    ]


def documents_of(split: Split) -> Iterator[Any]:
    return (document for part in (split.groups or {"": split}).values() for document in part.read_documents())


LAYOUT = {"splits": SPLITS["shares"], "path": PATHS["apart"]}


@pytest.fixture(scope="module")
def whole(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of all that a run meets: groups and splits of their own, and many windows."""
    output = tmp_path_factory.mktemp("whole") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scattering, "LEAST_WINDOW_BYTES", 3000)
        run_job(job_of(source, output, output=LAYOUT, rangeBytes=500), executor=inline())
    return output


def test_stops_change_nothing(source: Source, whole: Path, tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    kinds: set[str] = set()
    job = job_of(source, stopped, output=LAYOUT, rangeBytes=500)
    run_with_stops(job, step=3, before_stop=lambda task: kinds.add(type(task).__name__))
    assert kinds == {"TokenizeTask", "ScatterTask", "BuildTask"}
    assert difference(stopped, whole) is None


def test_a_shard_may_be_made_of_more_objects_than_a_process_may_open_files(
    source: Source, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scattering, "LEAST_WINDOW_BYTES", 1)
    monkeypatch.setattr(scattering, "_WINDOWS", 1_000)
    scattered: set[str] = set()

    def note(task: object) -> None:
        if isinstance(task, ScatterTask):
            scattered.add(task.product)

    free = 40
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(free)]  # this process may have numbers above free ones
    for number in held:
        os.close(number)
    limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 1, hard))
    try:
        run_job(job_of(source, tmp_path / "out", output=LAYOUT, rangeBytes=500), executor=inline(note))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    assert len(scattered) > 2 * free
    assert difference(tmp_path / "out", whole) is None


def test_a_window_that_another_run_has_scattered_needs_no_segment(source: Source, tmp_path: Path) -> None:
    """The other run deletes them."""
    found: list[ScatterTask] = []

    def note(task: object) -> None:
        if isinstance(task, ScatterTask):
            found.append(task)

    run_job(job_of(source, tmp_path / "out", output=LAYOUT, rangeBytes=500), executor=inline(note))
    assert len(found) > 3
    for task in found:
        assert task.run(WorkerState("here")).key == task.window.key
        with pytest.raises(ProductLost):
            replace(task, again=True).run(WorkerState("here"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("damage", ["deletes", "tears", "flips"])
def test_scratch_that_is_lost_is_made_again(damage: str, source: Source, whole: Path, tmp_path: Path) -> None:
    """Segments and scattered objects, at any time; a run gives up on what is lost three times before it is used."""
    chance = random.Random(damage)
    lost: Counter[Path] = Counter()

    def lose(task: object) -> None:
        scratch = sorted(path for path in output.glob("_tokenization/ledger/0/[ss][ec]*/**/*[0-9]") if path.is_file())
        scratch = [path for path in scratch if lost[path] < 2]
        if scratch and chance.random() < 0.07:
            path = chance.choice(scratch)
            lost[path] += 1
            data = bytearray(path.read_bytes())
            at = chance.randrange(len(data))
            data[at] ^= 1 << chance.randrange(8)
            path.unlink()
            if damage != "deletes":
                path.write_bytes(data[:at] if damage == "tears" else data)

    for attempt in range(3):
        output = tmp_path / str(attempt)
        run_job(job_of(source, output, output=LAYOUT, rangeBytes=500), executor=inline(lose))
        assert difference(output, whole) is None
    for kind in ("segments", "scattered"):
        assert sum(kind in path.parts for path in lost) > 3


def test_two_runs_at_once_make_one_dataset(source: Source, whole: Path, tmp_path: Path) -> None:
    job = job_of(source, tmp_path / "out", output=LAYOUT, rangeBytes=500)
    runs = [Running(command(job, tmp_path / str(n), "--processes", "1"), tmp_path / f"{n}.log") for n in range(2)]
    assert [run.wait() for run in runs] == [0, 0]
    assert difference(tmp_path / "out", whole) is None


def test_a_damaged_shard_is_written_again(source: Source, whole: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    shutil.copytree(whole, output)
    damaged = output / "web/train/00001.npy"
    damaged.write_bytes(damaged.read_bytes()[:-2] + b"\x07\x00")
    assert {finding.path for finding in verify(str(output), mode="checksums", processes=1).findings} >= {
        "web/train/00001.npy"
    }
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*.npy") if path != damaged}
    run_job(job_of(source, output, output=LAYOUT, rangeBytes=500, rerunToken="again"), executor=inline())
    assert difference(output, whole) is None
    assert before == {path: path.stat().st_mtime_ns for path in output.rglob("*.npy") if path != damaged}


def test_clean_removes_what_an_unfinished_run_wrote(source: Source, tmp_path: Path) -> None:
    def stop(task: object) -> None:
        if isinstance(task, BuildTask) and task.shard.name.index == 1:
            raise KeyboardInterrupt

    output = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_job(job_of(source, output, output=LAYOUT, rangeBytes=500), executor=inline(stop))
    assert list(output.glob("_tokenization/ledger/0/scattered/*/*"))
    cleaned = clean_output(output, dry_run=False)
    assert cleaned.stays == ()
    assert [path for path in output.rglob("*") if path.is_file()] == []


def test_seeds_share_no_order_and_a_corrupt_file_moves_no_other_document(source: Source, tmp_path: Path) -> None:
    def order(output: Path) -> list[tuple[int, int]]:
        dataset = open_dataset(output)
        sidecars = [shard.read_sidecar() for shard in dataset["train"].shards]
        places = [each for sidecar in sidecars for each in places_in(sidecar)]
        return list(dict.fromkeys(places))

    for seed in (0, 1):
        run_job(job_of(source, tmp_path / str(seed), seed=seed), executor=inline())
    first, second = order(tmp_path / "0"), order(tmp_path / "1")
    assert sorted(first) == sorted(second)
    assert sum(a == b for a, b in zip(first, second, strict=True)) < len(first) / 10
    shutil.copytree(source.folder, tmp_path / "source")
    (tmp_path / "source/0-web/0.jsonl").write_bytes(b"\x1f\x8b\x08\x00 no gzip")
    job = job_of(Source(tmp_path / "source", {}), tmp_path / "less", seed=0, maxCorruptFiles=1)
    run_job(job, executor=inline())
    assert order(tmp_path / "less") == [place for place in first if place[0] != 0]


# ---- verify


def swap_two(planter: Planter) -> None:
    documents = planter.documents
    other = next(n for n in range(4, len(documents)) if documents[n].stream == documents[3].stream)
    documents[3], documents[other] = documents[other], documents[3]


def leave_one_out(planter: Planter) -> None:
    del planter.documents[40]


def double_one(planter: Planter) -> None:
    planter.documents.insert(40, planter.documents[40])


def use_another_seed(planter: Planter) -> None:
    planter.sort(6)


def change_a_token(planter: Planter) -> None:
    at = next(n for n, document in enumerate(planter.documents) if len(document.tokens) > 9)
    document = planter.documents[at]
    planter.documents[at] = replace(document, tokens=(*document.tokens[:-1], document.tokens[-1] ^ 1))


def exchange_texts(planter: Planter) -> None:
    """Two documents of equal lengths have each other's tokens."""
    by_length: dict[tuple[int, int], int] = {}
    for at, document in enumerate(planter.documents):
        other = by_length.setdefault((document.stream, len(document.tokens)), at)
        if planter.documents[other].tokens != document.tokens:
            tokens = planter.documents[other].tokens
            planter.documents[other] = replace(planter.documents[other], tokens=document.tokens)
            planter.documents[at] = replace(document, tokens=tokens)
            return
    raise AssertionError("no two documents of equal lengths")


FAULTS: dict[str, tuple[Callable[[Planter], None], set[str], set[str]]] = {
    # what is planted, the faults that every mode finds, and those that reading the source adds
    "two documents swapped": (swap_two, {"OrderWrong"}, set()),
    "one left out": (leave_one_out, set(), {"FileCounts", "DocumentLost"}),
    "one twice": (double_one, {"OrderWrong"}, {"FileCounts", "DocumentDoubled"}),
    "another seed": (use_another_seed, {"OrderWrong"}, set()),
    "a token changed": (change_a_token, set(), {"TokensDiffer"}),
    "texts exchanged": (exchange_texts, set(), {"TokensDiffer"}),
}


@pytest.fixture(scope="module")
def written(source: Source, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A dataset of each layout."""
    folder = tmp_path_factory.mktemp("written")
    joined = {"formats": ["Npy", "Megatron"], "path": "{split}/{index:05d}"}
    for name, fields in (("apart", LAYOUT), ("joined", joined)):
        run_job(job_of(source, folder / name, output=fields), executor=inline())
    return {name: folder / name for name in ("apart", "joined")}


@pytest.mark.parametrize("layout_name", ["apart", "joined"])
def test_verify_finds_nothing_in_what_is_written_anew_without_a_fault(
    layout_name: str, written: dict[str, Path], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    shutil.copytree(written[layout_name], output)
    Planter(output).write()
    assert difference(output, written[layout_name]) is None
    for mode in ("checksums", "sample", "full"):
        assert verify(str(output), mode=mode, processes=1).findings == ()


@pytest.mark.parametrize("layout_name", ["apart", "joined"])
@pytest.mark.parametrize("fault", FAULTS)
def test_verify_names_what_was_planted_with_all_checksums_recomputed(
    fault: str, layout_name: str, written: dict[str, Path], tmp_path: Path
) -> None:
    plant, everywhere, from_source = FAULTS[fault]
    output = tmp_path / "out"
    shutil.copytree(written[layout_name], output)
    planter = Planter(output)
    plant(planter)
    planter.write()
    for mode in ("checksums", "sample", "full"):
        report = verify(str(output), mode=mode, processes=1, sample_one_in=1)
        found = {str(finding.fault) for finding in report.findings}
        assert found == everywhere | (from_source if mode != "checksums" else set()), (mode, report.findings)


@pytest.mark.parametrize("damage", ["a sidecar is missing", "a sidecar is cut", "a shard is missing", "a shard is cut"])
def test_verify_names_what_is_damaged_and_no_file_of_the_source(damage: str, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "out")
    name = "_tokenization/documents/web/train/00000001" if "sidecar" in damage else "web/train/00001.npy"
    damaged = tmp_path / "out" / name
    data = damaged.read_bytes()
    damaged.unlink()
    if "cut" in damage:
        damaged.write_bytes(data[:-3])
    for mode in ("checksums", "sample", "full"):
        findings = verify(str(tmp_path / "out"), mode=mode, processes=1, sample_one_in=1).findings
        assert {finding.path for finding in findings} - {"index.json"} == {name}  # whose digest is another one then
        assert {finding.uri for finding in findings} == {None}


def test_of_many_files_that_differ_a_few_are_looked_into(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenization_worker.verification.verify.MOST_FINDINGS", 2)
    output = tmp_path / "out"
    run_job(job_of(source, output, output=LAYOUT), executor=inline())
    planter = Planter(output)
    for at, document in enumerate(planter.documents):
        if document.tokens:
            planter.documents[at] = replace(document, tokens=(document.tokens[0] ^ 1, *document.tokens[1:]))
    planter.write()
    findings = [f for f in verify(str(output), mode="full", processes=1).findings if f.fault is Fault.TOKENS_DIFFER]
    assert len({finding.uri for finding in findings}) == 5
    assert len({finding.uri for finding in findings if finding.path}) == 2
    assert sum("nobody looked" in finding.found for finding in findings) == 3


def test_a_number_of_no_file_is_found(source: Source, tmp_path: Path) -> None:
    output = tmp_path / "out"
    run_job(job_of(source, output, output=LAYOUT), executor=inline())
    planter = Planter(output)
    at = next(n for n, document in enumerate(planter.documents) if document.tokens)
    planter.documents[at] = replace(planter.documents[at], file=77)
    planter.write()
    for mode in ("checksums", "full"):
        found = {str(finding.fault) for finding in verify(str(output), mode=mode, processes=1).findings}
        assert "SidecarWrong" in found


def test_verify_in_processes_says_the_same(whole: Path) -> None:
    one, two = (verify(str(whole), mode="full", processes=number) for number in (1, 2))
    assert one == two
    assert one.documents_compared == one.documents > 100


def places_in(sidecar: ShardDocuments | ScatteredDocuments) -> Iterator[tuple[int, int]]:
    assert isinstance(sidecar, ScatteredDocuments)
    return zip(sidecar.files.tolist(), sidecar.positions.tolist(), strict=True)
