"""`verify` passes what a run wrote and finds what was done to it afterwards, however well it was covered up."""

from __future__ import annotations

import configparser
import io
import os
import shutil
import tracemalloc
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import grimp
import numpy as np
import pytest

from support.corpus import BAD_LINES, CorpusWriter, take_documents, zstd
from support.engine.inline import inline
from support.faults.hostile import Hostile, hostile_files
from support.faults.plant import Planter
from support.places import CHECKOUT
from support.runs import make_job, read_index, write_index
from support.tokenizer_models import train_sentencepiece
from tokenization_worker.api.data import SourceFormat
from tokenization_worker.errors import ChangedError, DataError, SpecError
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.storage.sources import open_source
from tokenization_worker.verification.claims import SourceRules
from tokenization_worker.verification.decoders.record import CorruptSource
from tokenization_worker.verification.decoders.source import read_records
from tokenization_worker.verification.explain import History, explain
from tokenization_worker.verification.formats.npy import NPY
from tokenization_worker.verification.report import Fault, Finding, VerifyMode, VerifyProgress, VerifyReport
from tokenization_worker.verification.verify import dataset_digest, verify

pytestmark = pytest.mark.slow

MODES = list(VerifyMode)
SHARD_TOKENS = 6_000


def texts(count: int, *, first: int = 0) -> list[str]:
    """Short documents, odd ones among them, and one that is longer than most shards of these tests."""
    short = [text[: 40 + 9 * number % 400] for number, text in enumerate(take_documents(3_000 * count, first=first))]
    whole = take_documents(60_000, first=first, odd=False)
    return [*short[: count // 2], max(whole, key=len)[:9_000], *short[count // 2 : count]]


def _jsonl_corpus(folder: Path) -> CorpusWriter:
    """Plain and packed lines, unusable ones among them; documents of no text at the borders of files."""
    corpus = CorpusWriter(folder)
    corpus.jsonl(["", *texts(80), ""], blank_lines=True)
    corpus.jsonl(texts(60, first=300), pack="zstd", parts=3)
    corpus.unusable_lines(texts(40, first=600), BAD_LINES)
    corpus.jsonl([*texts(40, first=900), ""], pack="gzip", parts=2)
    return corpus


def _parquet_corpus(folder: Path) -> CorpusWriter:
    corpus = CorpusWriter(folder)
    corpus.parquet(["", *texts(80), ""], rows_per_group=9)
    corpus.parquet(texts(50, first=400), rows_per_group=50)
    return corpus


def _text_corpus(folder: Path) -> CorpusWriter:
    corpus = CorpusWriter(folder)
    corpus.text("<|sep|>".join(texts(80)) + "<|sep|>")
    corpus.text("")
    corpus.text("<|sep|>".join(texts(40, first=500)))
    return corpus


LAYOUTS: dict[str, tuple[Callable[[Path], CorpusWriter], dict[str, Any]]] = {
    "jsonl-leading-splits-uint16-before-gpt2": (
        _jsonl_corpus,
        {"tokenizer": {"name": "gpt2"}, "output": {"splits": [{"name": "val", "shards": 2}, {"name": "train"}]}},
    ),
    "jsonl-hash-splits-uint32-after-bytes": (
        _jsonl_corpus,
        {
            "tokenizer": {"name": "bytes", "delimiter": {"position": "After"}},
            "output": {"dtype": "UInt32", "splits": [{"name": "test", "share": "30%"}, {"name": "train"}]},
        },
    ),
    "parquet-one-split-uint16-none-bytes": (
        _parquet_corpus,
        {"tokenizer": {"name": "bytes", "delimiter": {"position": "None"}}},
    ),
    "text-short-shards-uint32-both-cl100k": (
        _text_corpus,
        {
            "tokenizer": {"name": "cl100k_base", "delimiter": {"begin": "<|endofprompt|>", "end": "<|endoftext|>"}},
            "source": {"format": "Text", "documentSeparator": "<|sep|>"},
            "output": {"dtype": "UInt32", "shards": {"tokens": 500}, "path": "{split}_{shard:06d}"},
        },
    ),
}


@pytest.fixture(autouse=True)
def samples_of_small_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The datasets here are so small that their samples would be all documents."""
    monkeypatch.setattr("tokenization_worker.verification.verify.SAMPLE_LEAST", 4)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished dataset of each layout, not to be written to."""
    folder = tmp_path_factory.mktemp("datasets")
    outputs = {}
    for name, (make_corpus, layer) in LAYOUTS.items():
        corpus = make_corpus(folder / name / "source").finish()
        outputs[name] = folder / name / "out"
        output = {"shards": {"tokens": SHARD_TOKENS}, **layer.get("output", {})}
        job = make_job(
            corpus.folder, outputs[name], layer, output=output, maxQuarantined=corpus.quarantined, rangeBytes="8Ki"
        )
        run_job(job, options=Options(processes=1))
    return outputs


@pytest.fixture(params=LAYOUTS)
def dataset(request: pytest.FixtureRequest, datasets: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of a finished dataset, to be damaged."""
    shutil.copytree(datasets[request.param], tmp_path / "out")
    return tmp_path / "out"


@pytest.fixture
def first_dataset(datasets: dict[str, Path], tmp_path: Path) -> Path:
    shutil.copytree(datasets[next(iter(LAYOUTS))], tmp_path / "out")
    return tmp_path / "out"


def check(output: Path, mode: VerifyMode, **options: Any) -> VerifyReport:
    return verify(str(output), mode=mode, **{"processes": 1, "sample_one_in": 10, **options})


def shown(report: VerifyReport) -> str:
    return "\n".join(map(str, report.findings))


def require(report: VerifyReport, fault: Fault, place: tuple[str, int], shard: tuple[str, int] | None = None) -> None:
    """The report has a finding of this kind at this place in the source and this token of a shard."""
    for finding in report.findings:
        is_there = (finding.uri, finding.position) == place and (
            shard is None or shard == (finding.path, finding.token)
        )
        if finding.fault is fault and is_there:
            return
    pytest.fail(f"expected {fault} at {place}, {shard}; found\n{shown(report)}")


# --- what a run wrote is right


@pytest.mark.parametrize("mode", MODES)
def test_what_a_run_wrote_passes(dataset: Path, mode: VerifyMode) -> None:
    report = check(dataset, mode)
    assert not report.findings, shown(report)
    index = read_index(dataset)
    assert report.digest == index["digest"] == dataset_digest(str(dataset), processes=1)
    assert report.tokens == index["tokens"]
    if mode is not VerifyMode.CHECKSUMS:
        assert report.documents == index["conservation"]["written"]
        assert report.quarantined == sum(index["conservation"]["quarantined"].values())
    if mode is VerifyMode.FULL:
        assert report.tokens_compared == index["tokens"]
        assert report.documents_compared == report.documents
    if mode is VerifyMode.SAMPLE:
        assert 0 < report.documents_compared < report.documents / 4


def test_forging_nothing_writes_back_the_same_bytes(dataset: Path) -> None:
    before = {path: path.read_bytes() for path in dataset.rglob("*") if path.is_file()}
    Planter(dataset).write()
    after = {path: path.read_bytes() for path in dataset.rglob("*") if path.is_file()}
    changed = {str(path.relative_to(dataset)) for path in before if before[path] != after.get(path)}
    # A receipt of a shard names the file that it was written as, and these were written again.
    assert {path for path in changed if "/shards/" not in path} == set()
    assert before.keys() == after.keys()


def test_processes_find_the_same_as_one(first_dataset: Path) -> None:
    Planter(first_dataset)
    planter = Planter(first_dataset)
    del planter.documents[7]
    planter.write()
    seen: list[VerifyProgress] = []
    alone = check(first_dataset, VerifyMode.FULL, on_progress=seen.append)
    together = check(first_dataset, VerifyMode.FULL, processes=2)
    assert alone == together
    assert alone.findings
    assert seen[-1].done_bytes == seen[-1].total_bytes
    assert seen[-1].findings == len(alone.findings)


# --- faults that only the source can tell


def pick(planter: Planter, number: int = 0, *, least_tokens: int = 3) -> int:
    """The number of a document in the middle of things."""
    candidates = [i for i, document in enumerate(planter.documents) if len(document.tokens) >= least_tokens]
    return candidates[len(candidates) // 3 + number]


def following(planter: Planter, number: int) -> int:
    """The next document of the same file and stream that has tokens of its own."""
    first = planter.documents[number]
    for other in range(number + 1, len(planter.documents)):
        document = planter.documents[other]
        is_near = (document.file, document.stream) == (first.file, first.stream)
        if is_near and len(document.tokens) > 2 and document.tokens != first.tokens:
            return other
    raise ValueError("no such document")


def require_forged_well(output: Path) -> None:
    """Nothing but the source shows the fault."""
    report = check(output, VerifyMode.CHECKSUMS)
    assert not report.findings, shown(report)


def test_a_lost_document_is_found(dataset: Path) -> None:
    planter = Planter(dataset)
    number = pick(planter)
    lost = planter.documents[number]
    shard = planter.start_of(lost)
    del planter.documents[number]
    planter.write()
    require_forged_well(dataset)
    for mode in (VerifyMode.SAMPLE, VerifyMode.FULL):
        require(check(dataset, mode), Fault.DOCUMENT_LOST, lost.place, shard)


def test_a_doubled_document_is_found(dataset: Path) -> None:
    planter = Planter(dataset)
    number = pick(planter)
    doubled = planter.documents[number]
    copy = replace(doubled)
    planter.documents.insert(number + 1, copy)
    shard = planter.start_of(copy)
    planter.write()
    require_forged_well(dataset)
    for mode in (VerifyMode.SAMPLE, VerifyMode.FULL):
        require(check(dataset, mode), Fault.DOCUMENT_DOUBLED, doubled.place, shard)


def test_two_swapped_documents_are_found(dataset: Path) -> None:
    planter = Planter(dataset)
    number = pick(planter)
    other = following(planter, number)
    first, second = planter.documents[number], planter.documents[other]
    shard = planter.start_of(first)
    planter.documents[number], planter.documents[other] = second, first
    planter.write()
    require_forged_well(dataset)
    report = check(dataset, VerifyMode.FULL)
    require(report, Fault.DOCUMENTS_SWAPPED, first.place, shard)
    assert len(report.findings) == 1, shown(report)


def test_a_flipped_token_is_found(dataset: Path) -> None:
    planter = Planter(dataset)
    number = pick(planter)
    document = planter.documents[number]
    start = planter.start_of(document)
    tokens = list(document.tokens)
    tokens[2] ^= 1
    planter.documents[number] = replace(document, tokens=tuple(tokens))
    planter.write()
    require_forged_well(dataset)
    report = check(dataset, VerifyMode.FULL)
    [finding] = report.findings
    assert finding.fault is Fault.TOKENS_DIFFER
    assert (finding.uri, finding.position) == document.place
    where, token = start[0], start[1] + 2
    assert (finding.path, finding.token) == (where, token) or token >= planter.facts.shard_tokens
    assert f"{document.tokens[2]}" in finding.expected
    assert f"{tokens[2]}" in finding.found


def _first_of_file(planter: Planter) -> int:
    return next(i for i, document in enumerate(planter.documents) if document.file == 2 and len(document.tokens) > 2)


def _last_of_file(planter: Planter) -> int:
    return max(i for i, document in enumerate(planter.documents) if document.file == 0 and len(document.tokens) > 2)


def _last_of_all(planter: Planter) -> int:
    return max(i for i, document in enumerate(planter.documents) if len(document.tokens) > 2)


@pytest.mark.parametrize("choose", [_first_of_file, _last_of_file, _last_of_all])
def test_a_document_lost_at_a_border_is_found(first_dataset: Path, choose: Callable[[Planter], int]) -> None:
    planter = Planter(first_dataset)
    lost = planter.documents.pop(choose(planter))
    planter.write()
    require(check(first_dataset, VerifyMode.FULL), Fault.DOCUMENT_LOST, lost.place)


def test_a_copy_far_from_its_document_is_found(first_dataset: Path) -> None:
    planter = Planter(first_dataset)
    number = pick(planter)
    other = following(planter, following(planter, number))
    copy = replace(planter.documents[number])
    planter.documents.insert(other + 1, copy)
    shard = planter.start_of(copy)
    planter.write()
    require(check(first_dataset, VerifyMode.FULL), Fault.DOCUMENT_DOUBLED, copy.place, shard)


def test_documents_swapped_between_two_files_are_found(first_dataset: Path) -> None:
    planter = Planter(first_dataset)
    number, other = _last_of_file(planter), _first_of_file(planter)
    first, second = planter.documents[number], planter.documents[other]
    planter.documents[number] = replace(second, file=first.file, uri=first.uri, position=first.position)
    planter.documents[other] = replace(first, file=second.file, uri=second.uri, position=second.position)
    planter.write()
    report = check(first_dataset, VerifyMode.FULL)
    for document in (first, second):
        require(report, Fault.TOKENS_DIFFER, document.place)


def test_a_document_in_the_wrong_split_is_found(datasets: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(datasets["jsonl-hash-splits-uint32-after-bytes"], tmp_path / "out")
    planter = Planter(tmp_path / "out")
    number = pick(planter)
    moved = planter.documents[number]
    planter.documents[number] = replace(moved, stream=1 - moved.stream)
    planter.write()
    require_forged_well(tmp_path / "out")
    report = check(tmp_path / "out", VerifyMode.FULL)
    require(report, Fault.DOCUMENT_LOST, moved.place)
    assert {finding.fault for finding in report.findings} >= {Fault.TOKENS_ADDED, Fault.FILE_COUNTS}


def test_a_lost_delimiter_is_found(first_dataset: Path) -> None:
    planter = Planter(first_dataset)
    number = pick(planter)
    document = planter.documents[number]
    planter.documents[number] = replace(document, tokens=document.tokens[1:])
    planter.write()
    require(
        check(first_dataset, VerifyMode.FULL),
        Fault.TOKENS_DIFFER,
        document.place,
        planter.start_of(planter.documents[number]),
    )


def test_a_border_between_two_documents_that_was_moved_is_found(dataset: Path) -> None:
    """The tokens are right, the sidecars and counts are not: where there are delimiters, these show it alone."""
    planter = Planter(dataset)
    number = pick(planter)
    other = following(planter, number)
    while other != number + 1 or planter.documents[number].stream != planter.documents[other].stream:
        number, other = other, following(planter, other)
    first, second = planter.documents[number], planter.documents[other]
    planter.documents[number] = replace(first, tokens=first.tokens + second.tokens[:1])
    planter.documents[other] = replace(second, tokens=second.tokens[1:])
    planter.write()
    alone = {Fault.DELIMITER_WRONG} if planter.facts.delimiter_ids else set()
    assert {finding.fault for finding in check(dataset, VerifyMode.CHECKSUMS).findings} == alone
    report = check(dataset, VerifyMode.FULL)
    assert {finding.fault for finding in report.findings} == {Fault.SIDECAR_WRONG} | alone, shown(report)
    sidecars = {finding.uri for finding in report.findings if finding.fault is Fault.SIDECAR_WRONG}
    assert sidecars == {first.uri}


def test_claims_that_are_moved_from_one_file_to_the_next_are_found(first_dataset: Path) -> None:
    planter = Planter(first_dataset)
    number = _last_of_file(planter)
    document = planter.documents[number]
    planter.documents[number] = replace(document, file=1)
    planter.write()
    report = check(first_dataset, VerifyMode.FULL)
    require(report, Fault.DOCUMENT_LOST, document.place)
    assert {finding.uri for finding in report.findings} == {planter.files[0]["uri"], planter.files[1]["uri"]}


def test_many_faults_do_not_hide_each_other_or_run_on_for_ever(first_dataset: Path) -> None:
    planter = Planter(first_dataset)
    planter.documents = [
        replace(document, tokens=(*document.tokens[:-1], document.tokens[-1] ^ 1)) if document.tokens else document
        for document in planter.documents
    ]
    planter.write()
    report = check(first_dataset, VerifyMode.FULL)
    assert {finding.uri for finding in report.findings if finding.fault is Fault.TOKENS_DIFFER} == {
        row["uri"] for row in planter.files
    }
    assert len(report.findings) < 100


def test_a_file_that_is_missing_from_all_tables_is_found_by_the_plan(first_dataset: Path) -> None:
    planter = Planter(first_dataset)
    dropped = planter.files.pop()
    planter.documents = [document for document in planter.documents if document.uri != dropped["uri"]]
    planter.quarantine = [row for row in planter.quarantine if row["uri"] != dropped["uri"]]
    plan = (first_dataset / "_tokenization/plan").read_bytes()
    planter.write()
    assert (first_dataset / "_tokenization/plan").read_bytes() == plan
    report = check(first_dataset, VerifyMode.CHECKSUMS)
    assert [finding.fault for finding in report.findings] == [Fault.TABLES_DISAGREE], shown(report)


def test_a_good_file_that_is_said_to_be_damaged_is_found(first_dataset: Path) -> None:
    planter = Planter(first_dataset)
    planter.files[1].update(outcome="CorruptFile", detail="it is not")
    planter.documents = [document for document in planter.documents if document.file != 1]
    planter.write()
    require_forged_well(first_dataset)
    for mode in (VerifyMode.SAMPLE, VerifyMode.FULL):
        [finding] = check(first_dataset, mode).findings
        assert (finding.fault, finding.uri) == (Fault.FILE_OUTCOME, planter.files[1]["uri"])
        assert (finding.expected, finding.found) == ("Read", "CorruptFile")


def test_an_unusable_document_that_is_not_listed_is_found(first_dataset: Path) -> None:
    planter = Planter(first_dataset)
    gone = planter.quarantine.pop(3)
    planter.write()
    require_forged_well(first_dataset)
    for mode in (VerifyMode.SAMPLE, VerifyMode.FULL):
        require(check(first_dataset, mode), Fault.QUARANTINE_DIFFERS, (gone["uri"], gone["position"]))


# --- damage that shows without the source


def test_a_shard_cut_by_two_bytes_is_found(dataset: Path) -> None:
    planter = Planter(dataset)
    document = next(d for d in reversed(planter.documents) if d.stream == 0 and d.tokens)
    path = dataset / planter.start_of(document)[0]
    tokens = (path.stat().st_size - 128) // planter.facts.dtype.itemsize
    os.truncate(path, path.stat().st_size - 2)
    name = str(path.relative_to(dataset))
    for mode in MODES:
        report = check(dataset, mode)
        assert any((f.fault, f.path, f.token) == (Fault.SHARD_SIZE, name, tokens - 1) for f in report.findings)
    require(check(dataset, VerifyMode.FULL), Fault.TOKENS_DIFFER, document.place, (name, tokens - 1))


def _flip_a_byte(output: Path) -> str:
    path = sorted(output.rglob("*.npy"))[1]
    data = bytearray(path.read_bytes())
    data[1000] ^= 0x10
    path.write_bytes(data)
    return str(path.relative_to(output))


def _remove_a_shard(output: Path) -> str:
    path = sorted(output.rglob("*.npy"))[1]
    path.unlink()
    return str(path.relative_to(output))


def _change_a_header(output: Path) -> str:
    path = sorted(output.rglob("*.npy"))[1]
    path.write_bytes(path.read_bytes().replace(b"False", b"True ", 1))
    return str(path.relative_to(output))


def _write_beside(output: Path) -> str:
    path = sorted(output.rglob("*.npy"))[-1]
    beside = path.with_name(path.name.replace("0000", "0009"))
    np.save(beside, np.zeros(5, np.uint16))
    return str(beside.relative_to(output))


def _cut_a_sidecar(output: Path) -> str:
    path = sorted((output / "_tokenization/documents").rglob("0*"))[0]
    os.truncate(path, path.stat().st_size - 4)
    return str(path.relative_to(output))


def _remove_a_sidecar(output: Path) -> str:
    path = sorted((output / "_tokenization/documents").rglob("0*"))[0]
    path.unlink()
    return str(path.relative_to(output))


def _cut_a_table(output: Path) -> str:
    os.truncate(output / "shards.jsonl.zst", 50)
    return "shards.jsonl.zst"


def _change_a_sum(output: Path) -> str:
    index = read_index(output)
    index["conservation"]["read"] += 1
    write_index(output, index)
    return "index.json"


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (_flip_a_byte, Fault.SHARD_CHECKSUM),
        (_remove_a_shard, Fault.SHARD_MISSING),
        (_change_a_header, Fault.SHARD_HEADER),
        (_write_beside, Fault.UNEXPECTED_FILE),
        (_cut_a_sidecar, Fault.SIDECAR_CORRUPT),
        (_remove_a_sidecar, Fault.SIDECAR_MISSING),
        (_cut_a_table, Fault.TABLE_CORRUPT),
        (_change_a_sum, Fault.TABLES_DISAGREE),
    ],
)
def test_damage_is_found_without_the_source(first_dataset: Path, damage: Callable[[Path], str], fault: Fault) -> None:
    path = damage(first_dataset)
    report = check(first_dataset, VerifyMode.CHECKSUMS)
    assert fault in {finding.fault for finding in report.findings if finding.path == path}, shown(report)
    assert check(first_dataset, VerifyMode.FULL).findings


@pytest.mark.parametrize("mode", MODES)
def test_a_missing_shard_is_one_finding(dataset: Path, mode: VerifyMode) -> None:
    """Its documents cannot be compared, and their tokens are not said to be wrong."""
    whole = check(dataset, mode)
    path = _remove_a_shard(dataset)
    report = check(dataset, mode)
    assert [(finding.fault, finding.path) for finding in report.findings] == [(Fault.SHARD_MISSING, path)], shown(
        report
    )
    assert report.digest is None
    if mode is VerifyMode.FULL:
        lost = whole.tokens - report.tokens
        assert 0 < lost == whole.tokens_compared - report.tokens_compared


def test_a_fault_beside_a_missing_shard_is_found(first_dataset: Path) -> None:
    planter = Planter(first_dataset)
    lost = planter.documents.pop(_last_of_file(planter))
    planter.write()
    path = _remove_a_shard(first_dataset)
    report = check(first_dataset, VerifyMode.FULL)
    require(report, Fault.DOCUMENT_LOST, lost.place)
    assert {finding.fault for finding in report.findings if finding.path == path} == {Fault.SHARD_MISSING}


def _change_the_files_table(output: Path) -> str:
    """A word that no sum and no key counts."""
    path = output / "_tokenization/files.jsonl.zst"
    rows = zstd.decompress(path.read_bytes())
    changed = rows.replace(b'"detail":""', b'"detail":"x"', 1)
    assert changed != rows
    path.write_bytes(zstd.compress(changed))
    return "_tokenization/files.jsonl.zst"


@pytest.mark.parametrize("mode", MODES)
def test_a_files_table_that_is_not_the_index_s_is_found_in_every_mode(dataset: Path, mode: VerifyMode) -> None:
    path = _change_the_files_table(dataset)
    [finding] = check(dataset, mode).findings
    assert (finding.fault, finding.path) == (Fault.DIGEST_DIFFERS, path)
    assert read_index(dataset)["run"]["filesDigest"] in finding.expected


def test_tables_have_checksums_of_their_own(dataset: Path) -> None:
    """Of the frame: a flipped bit is found by whatever unpacks it."""
    for name in ("shards.jsonl.zst", "_tokenization/files.jsonl.zst", "_tokenization/quarantine.jsonl.zst"):
        assert zstd.get_frame_info((dataset / name).read_bytes()[:18]) is not None
        assert (dataset / name).read_bytes()[4] & 0b100, name  # Content_Checksum_flag, RFC 8878


def test_every_bit_of_a_shard_s_header_counts_and_none_is_a_traceback(first_dataset: Path) -> None:
    dtype = Planter(first_dataset).facts.dtype
    header = next(first_dataset.rglob("*.npy")).read_bytes()[:128]

    def tokens_of(data: bytes) -> int | None:
        scan = NPY.scan(dtype)
        scan.take(0, data)
        return scan.tokens

    tokens = tokens_of(header)
    assert tokens is not None
    for bit in range(8 * 128):
        flipped = bytearray(header)
        flipped[bit // 8] ^= 1 << bit % 8
        assert tokens_of(bytes(flipped)) != tokens


@pytest.mark.parametrize("piece", [1, 3, 127, 128, 129, 1000])
def test_a_shard_is_read_whatever_its_pieces_are(piece: int) -> None:
    file = io.BytesIO()
    np.save(file, np.arange(500, dtype="<u2"))
    data = file.getvalue()
    scan = NPY.scan(np.dtype("<u2"))
    parts = [scan.take(0, data[start : start + piece]) for start in range(0, len(data), piece)]
    assert np.concatenate(parts).tolist() == list(range(500))
    assert (scan.tokens, scan.tokens_seen) == (500, 500)


@pytest.mark.parametrize(
    "damage", [_flip_a_byte, _change_a_header, _cut_a_sidecar, _change_a_sum, _change_the_files_table, _cut_a_table]
)
def test_the_digest_of_a_damaged_dataset_is_refused(first_dataset: Path, damage: Callable[[Path], str]) -> None:
    path = damage(first_dataset)
    with pytest.raises(
        DataError, match=rf"Dataset(Damaged|Incomplete): {first_dataset} is damaged: .*{path}"
    ) as caught:
        dataset_digest(str(first_dataset), processes=1)
    assert caught.value.next_step


def test_the_digest_of_damaged_bytes_is_told_with_what_is_damaged(first_dataset: Path) -> None:
    clean = dataset_digest(str(first_dataset), processes=1)
    _flip_a_byte(first_dataset)
    with pytest.raises(DataError, match=r"DatasetDamaged: .*ShardChecksum: ") as caught:
        dataset_digest(str(first_dataset), processes=1)
    found = check(first_dataset, VerifyMode.CHECKSUMS).digest
    assert found != clean
    assert f"the existing bytes have digest {found}" in caught.value.message
    _remove_a_shard(first_dataset)
    with pytest.raises(DataError, match=r"DatasetIncomplete: .*ShardMissing"):
        dataset_digest(str(first_dataset), processes=1)


# --- memory


def _peak(folder: Path, count: int, mode: VerifyMode, text: bytes = b"", shard_tokens: int = 5_000) -> int:
    """The most memory that `verify` holds for so many documents of `text` in shards of the same size."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.jsonl").write_bytes(b'{"text":"%s"}\n' % text * count)
    fields: dict[str, Any] = {"tokenizer": {"name": "bytes"}, "output": {"shards": {"tokens": shard_tokens}}}
    run_job(make_job(folder / "src", folder / "out", **fields), executor=inline())
    tracemalloc.start()
    try:
        report = check(folder / "out", mode)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert report.is_clean, shown(report)
    assert report.documents == count
    return peak


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", [VerifyMode.FULL, VerifyMode.SAMPLE])
def test_memory_does_not_grow_with_the_number_of_empty_documents(tmp_path: Path, mode: VerifyMode) -> None:
    """They have no text to be counted by; 40,000 more of them took 16 MB."""
    _peak(tmp_path / "first", 100, mode)  # what is loaded and kept once
    few = _peak(tmp_path / "few", 10_000, mode)
    many = _peak(tmp_path / "many", 50_000, mode)
    assert many < few + (1 << 20), f"{few:,} and {many:,} bytes"


def test_memory_does_not_grow_with_the_number_of_large_documents(tmp_path: Path) -> None:
    """Each has 8 MB of tokens while it is compared, and the last 64 were remembered."""
    text = b"x" * 1_000_000
    few = _peak(tmp_path / "few", 4, VerifyMode.FULL, text, 500_000)
    many = _peak(tmp_path / "many", 12, VerifyMode.FULL, text, 500_000)
    assert many < few + (8 << 20), f"{few:,} and {many:,} bytes"


@pytest.mark.parametrize("damage", [_flip_a_byte, _remove_a_shard, _cut_a_sidecar, _remove_a_sidecar])
def test_a_rerun_mends_what_checksums_finds(tmp_path: Path, damage: Callable[[Path], str]) -> None:
    corpus = _parquet_corpus(tmp_path / "source").finish()
    fields: dict[str, Any] = {"tokenizer": {"name": "bytes"}, "output": {"shards": {"tokens": SHARD_TOKENS}}}
    run_job(make_job(corpus.folder, tmp_path / "out", **fields), options=Options(processes=1))
    path = damage(tmp_path / "out")
    report = check(tmp_path / "out", VerifyMode.CHECKSUMS)
    assert path in {finding.path for finding in report.findings}
    run_job(make_job(corpus.folder, tmp_path / "out", fields, rerunToken="2"), options=Options(processes=1))
    report = check(tmp_path / "out", VerifyMode.FULL)
    assert not report.findings, shown(report)


# --- dropped files, changed sources, other datasets


def test_a_dropped_file_is_dropped_whole_and_passes(tmp_path: Path) -> None:
    corpus = _jsonl_corpus(tmp_path / "source")
    corpus.truncated_zstd(texts(30, first=1200))
    corpus.jsonl(texts(20, first=1500))
    found = corpus.finish()
    job = make_job(
        found.folder,
        tmp_path / "out",
        tokenizer={"name": "bytes"},
        output={"shards": {"tokens": SHARD_TOKENS}},
        maxQuarantined=found.quarantined,
        maxCorruptFiles=1,
    )
    run_job(job, options=Options(processes=1))
    for mode in MODES:
        report = check(tmp_path / "out", mode)
        assert not report.findings, shown(report)
        assert (report.files, report.files_dropped) == ((0, 0) if mode == "checksums" else (6, 1))
    assert read_index(tmp_path / "out")["conservation"]["files"] == {"Read": 5, "CorruptFile": 1}


def test_texts_that_a_tokenizer_makes_nothing_of_are_in_no_shard_and_pass(tmp_path: Path) -> None:
    """SentencePiece drops blanks: without a delimiter such a document has no tokens, and no place in a sidecar."""
    corpus = CorpusWriter(tmp_path / "source")
    corpus.jsonl(["", " ", *texts(20), "  ", " "])
    corpus.jsonl(texts(20, first=200))
    model = train_sentencepiece(tmp_path / "model")
    job = make_job(
        corpus.folder,
        tmp_path / "out",
        tokenizer={"name": None, "uri": str(model), "delimiter": {"position": "None"}},
        output={"shards": {"tokens": SHARD_TOKENS}},
    )
    run_job(job, options=Options(processes=1))
    for mode in MODES:
        report = check(tmp_path / "out", mode)
        assert not report.findings, shown(report)
        if mode is VerifyMode.SAMPLE:
            assert 25 < report.documents_compared < report.documents  # the first file whole, the second in part


@pytest.mark.parametrize("change", ["content", "size", "gone"])
def test_a_source_that_has_changed_proves_nothing(tmp_path: Path, change: str) -> None:
    corpus = _parquet_corpus(tmp_path / "source").finish()
    job = make_job(corpus.folder, tmp_path / "out", tokenizer={"name": "bytes"})
    run_job(job, options=Options(processes=1))
    path = sorted(corpus.folder.iterdir())[0]
    if change == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + (b"x" if change == "size" else b""))
    for mode in (VerifyMode.SAMPLE, VerifyMode.FULL):
        with pytest.raises(ChangedError, match="SourceChanged"):
            check(tmp_path / "out", mode)
    assert not check(tmp_path / "out", VerifyMode.CHECKSUMS).findings


def test_the_digest_does_not_depend_on_how_the_dataset_was_made(tmp_path: Path) -> None:
    corpus = _jsonl_corpus(tmp_path / "source").finish()
    digests = set()
    for number, (processes, range_bytes, engine) in enumerate([(1, "64Ki", "reference"), (2, "1Ki", "fastokens")]):
        job = make_job(
            corpus.folder,
            tmp_path / f"out{number}",
            output={"shards": {"tokens": SHARD_TOKENS}},
            maxQuarantined=corpus.quarantined,
            rangeBytes=range_bytes,
        )
        run_job(job, options=Options(processes=processes, engine=engine))
        digests.add(dataset_digest(str(tmp_path / f"out{number}"), processes=1))
    assert len(digests) == 1


def test_a_folder_without_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="NotADataset"):
        verify(str(tmp_path))


def test_another_tokenizer_than_the_datasets_is_refused(first_dataset: Path) -> None:
    index = read_index(first_dataset)
    index["run"]["tokenizer"]["name"] = "bytes"
    write_index(first_dataset, index)
    with pytest.raises(ChangedError, match="TokenizerChanged"):
        check(first_dataset, VerifyMode.SAMPLE)


# --- the parts


@pytest.mark.parametrize("file", hostile_files(), ids=lambda file: file.id)
def test_the_second_reader_follows_the_policy(file: Hostile, tmp_path: Path) -> None:
    path = tmp_path / file.name
    path.write_bytes(file.content)
    rules = SourceRules(SourceFormat.AUTO, "text", None, 64 << 20)
    outcome, documents, quarantined = "Read", 0, Counter[str]()
    with closing(open_source(str(path))) as stream:
        try:
            for record in read_records(stream, str(path), rules):
                documents += record.text is not None
                quarantined.update([str(record.reason)] if record.reason else [])
        except CorruptSource as damage:
            outcome = str(damage.outcome)
    assert outcome == file.outcome
    if outcome == "Read":
        assert (documents, quarantined) == (file.documents, file.quarantined)


def _tokens(text: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([ord(letter) for letter in text], dtype=np.int64)


@pytest.mark.parametrize(
    ("expected", "found", "history"),
    [
        ("abc|def|ghi", "defghi", History(1, 0)),
        ("abc|def|ghi", "ghi", History(2, 0)),
        ("abc|def|ghi", "xyabcdefghi", History(0, 2)),
        ("abc|def|ghi", "axcdefghi", History(1, 3)),
        ("abc|def|ghi", "acdefghi", History(1, 2)),
        ("abc|def|ghi", "defabcghi", History(2, 6, 1)),
        ("abc|de|fgh|i", "fghdeabci", History(3, 8, 2)),
        ("abc|def", "", History(2, 0)),
        ("abc|def", "abx", History(2, 3)),
    ],
)
def test_the_simplest_history_is_found(expected: str, found: str, history: History) -> None:
    parts = [_tokens(part) for part in expected.split("|")]
    assert explain(parts, _tokens(found), is_end=True) == history


def test_a_finding_reads_as_what_where_expected_found() -> None:
    finding = Finding(
        Fault.DOCUMENT_LOST, "its 5 tokens", "none of them", "train/train_000001.npy", 1234, "/a.jsonl", 99
    )
    assert str(finding) == (
        "DocumentLost: train/train_000001.npy token 1,234; /a.jsonl @ 99: expected its 5 tokens, found none of them"
    )


def test_verify_imports_nothing_that_writes() -> None:
    graph = grimp.build_graph("tokenization_worker", cache_dir=None)
    own = {name for name in graph.modules if name.startswith("tokenization_worker.verification")}
    allowed = (
        "api",
        "errors",
        "host.main_guard",
        "messages",
        "output.index",
        "output.layout",
        "output.recovery",
        "output.versions",
        "processes",
        "readers.document_batch",
        "storage",
        "tokenizers",
        "verification",
    )
    imported = {name for module in own for name in graph.find_modules_directly_imported_by(module)}
    prefixes = tuple(f"tokenization_worker.{name}" for name in allowed)
    assert {name for name in imported if not name.startswith(prefixes)} == set()


def test_the_contract_of_verify_forbids_readers_and_output_but_for_the_words_that_both_use() -> None:
    config = configparser.ConfigParser()
    config.read(CHECKOUT / ".importlinter")
    contract = config["importlinter:contract:verify-shares-nothing-with-the-writers"]
    assert {"tokenization_worker.readers", "tokenization_worker.output"} <= set(contract["forbidden_modules"].split())
    allowed = {line.split(" -> ")[1] for line in contract["ignore_imports"].strip().splitlines()}
    names = ("output.index", "output.layout", "output.recovery", "output.versions", "readers.document_batch")
    assert allowed == {f"tokenization_worker.{name}" for name in names}
