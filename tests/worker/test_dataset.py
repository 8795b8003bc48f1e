"""Reading a finished dataset: tokens, shards, and the document behind a token."""

from __future__ import annotations

import pickle
import shutil
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import CorpusWriter, take_documents
from gcs_emulator import gcs_bucket, gcs_host, gcs_uri  # noqa: F401  fixtures
from plant import Document, Planter
from runs import TOKJOB, files_below, make_job, run_command

from tokenization_worker.commit import create_bytes
from tokenization_worker.dataset import open_dataset
from tokenization_worker.documents import ShardDocuments
from tokenization_worker.errors import DataError, SpecError
from tokenization_worker.run import Options, run_job
from tokenization_worker.show import show_documents
from tokenization_worker.storage.open import open_store
from tokenization_worker.verification.source import SeekableStream
from tokenization_worker.verification.verify import dataset_digest, verify
from tokenization_worker.work import Stopped

SHARD_TOKENS = 700
SIDECAR = "_tokenization/documents/val/00000000"


def texts(count: int, *, first: int = 0) -> list[str]:
    """Short documents, and one that fills several shards."""
    short = [text[: 30 + 7 * number % 300] for number, text in enumerate(take_documents(3_000 * count, first=first))]
    return [*short[: count // 2], "long " * 900, *short[count // 2 : count]]


def _jsonl(folder: Path) -> CorpusWriter:
    corpus = CorpusWriter(folder)
    corpus.jsonl(["", *texts(40)], blank_lines=True)
    corpus.jsonl(texts(30, first=300), pack="zstd")
    corpus.jsonl([""])
    corpus.jsonl(texts(20, first=500), pack="gzip")
    return corpus


def _parquet(folder: Path) -> CorpusWriter:
    corpus = CorpusWriter(folder)
    corpus.parquet(["", *texts(40), ""], rows_per_group=9)
    corpus.parquet(texts(30, first=300), rows_per_group=50)
    return corpus


def _text(folder: Path) -> CorpusWriter:
    corpus = CorpusWriter(folder)
    for text in texts(30):
        corpus.text(text)
    return corpus


LAYOUTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "leading-splits-jsonl-gpt2": (_jsonl, {"output": {"splits": [{"name": "val", "shards": 3}, {"name": "train"}]}}),
    "hash-splits-jsonl-bytes-after": (
        _jsonl,
        {
            "tokenizer": {"name": "bytes", "delimiter": {"position": "After"}},
            "output": {"dtype": "UInt32", "splits": [{"name": "test", "share": "40%"}, {"name": "train"}]},
        },
    ),
    "parquet-bytes-without-delimiter": (_parquet, {"tokenizer": {"name": "bytes", "delimiter": {"position": "None"}}}),
    "text-gpt2": (_text, {}),
}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("datasets")
    outputs = {}
    for name, (make_corpus, layer) in LAYOUTS.items():
        corpus = make_corpus(folder / name / "source").finish()
        outputs[name] = folder / name / "out"
        output = {"shards": {"tokens": SHARD_TOKENS}, **layer.get("output", {})}
        run_job(make_job(corpus.folder, outputs[name], layer, output=output), options=Options(processes=1))
    return outputs


@pytest.fixture(params=LAYOUTS)
def output(request: pytest.FixtureRequest, datasets: dict[str, Path]) -> Path:
    return datasets[request.param]


@pytest.fixture
def first_output(datasets: dict[str, Path]) -> Path:
    return datasets["leading-splits-jsonl-gpt2"]


def test_splits_hold_their_shards_tokens(output: Path) -> None:
    dataset = open_dataset(output)
    assert dataset.uri == str(output)
    for name, split in dataset.items():
        whole = np.concatenate([np.load(output / shard.path) for shard in split.shards])
        assert len(split) == len(whole)
        assert split.name == name
        assert [shard.tokens for shard in split.shards[:-1]] == [SHARD_TOKENS] * (len(split.shards) - 1)
        assert np.array_equal(split.tokens(0, len(split)), whole)
        for start in range(0, len(split), 333):
            end = min(start + 1500, len(split))
            assert np.array_equal(split.tokens(start, end), whole[start:end])
            assert split.tokens(start, end).dtype == whole.dtype


def test_tokens_are_a_new_array_and_shards_a_read_only_map(first_output: Path) -> None:
    split = open_dataset(str(first_output) + "/")["train"]
    tokens = split.tokens(5, 10)
    tokens[:] = 0
    assert split.tokens(5, 10).any()
    shard = split.shards[0].open()
    assert isinstance(shard, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        shard[0] = 0


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (5, 4), (0, 10**9)])
def test_tokens_outside_of_a_split_are_refused(first_output: Path, start: int, end: int) -> None:
    with pytest.raises(IndexError, match="train"):
        open_dataset(first_output)["train"].tokens(start, end)


def test_a_dataset_can_be_sent_to_loader_processes(first_output: Path) -> None:
    dataset = open_dataset(first_output)
    dataset.locate("train", 0)
    again = pickle.loads(pickle.dumps(dataset))
    assert np.array_equal(again["train"].tokens(0, 1000), dataset["train"].tokens(0, 1000))
    assert len(pickle.dumps(dataset)) < 5000


def documents_of(output: Path, split: str) -> list[tuple[int, Document]]:
    """Every document with tokens of the split's stream, with its first token's number in the split."""
    dataset, planter = open_dataset(output), Planter(output)
    documents = []
    start = -dataset[split].start
    for document in planter.in_stream(dataset[split].stream.number):
        if document.tokens:
            documents.append((start, document))
        start += len(document.tokens)
    return [(start, document) for start, document in documents if start + len(document.tokens) > 0]


def test_every_token_is_located_in_its_document(output: Path) -> None:
    dataset = open_dataset(output)
    for name, split in dataset.items():
        for start, document in documents_of(output, name):
            if start >= len(split):
                break
            for token in {max(0, start), min(start + len(document.tokens), len(split)) - 1}:
                place = dataset.locate(name, token)
                assert (place.uri, place.start, place.tokens) == (document.uri, start, len(document.tokens))
                assert place.shard == token // SHARD_TOKENS
                assert place.path == split.shards[place.shard].path
                assert place.position in (None, document.position)
        for shard in split.shards:  # whose first document is recorded with its place
            assert dataset.locate(name, shard.start - split.start).position is not None


def test_documents_are_shown_with_text_place_and_id(output: Path) -> None:
    dataset = open_dataset(output)
    for name, split in dataset.items():
        expected = [item for item in documents_of(output, name) if item[0] < len(split)]
        shown = show_documents(str(output), name, 0, count=len(expected))
        assert [item.note for item in shown] == [""] * len(expected)
        for item, (start, document) in zip(shown, expected, strict=True):
            assert item.place.start == start
            assert tuple(item.tokens.tolist()) == document.tokens
            assert (item.place.uri, item.position) == document.place
            assert item.record is not None
            if document.uri.endswith(".txt"):
                assert item.id == f"{document.uri}@0"
                assert item.text == Path(document.uri).read_text()
            elif document.uri.endswith(".parquet"):
                assert item.id == f"row-{document.position}"
            else:
                assert str(item.id).startswith("doc-")
        for start, document in expected[:: max(1, len(expected) // 7)]:
            [one] = show_documents(str(output), name, max(start, 0))
            assert (one.place.uri, one.position) == document.place


def test_rows_are_read_in_the_thread_that_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of pyarrow's that outlives the call by a moment aborts an interpreter that ends then."""
    corpus = _parquet(tmp_path / "source").finish()
    run_job(make_job(corpus.folder, tmp_path / "out", tokenizer={"name": "bytes"}), options=Options(processes=1))
    read = SeekableStream.readinto
    readers: set[int] = set()

    def watched(stream: SeekableStream, buffer: memoryview) -> int:
        readers.add(threading.get_ident())
        return read(stream, buffer)

    monkeypatch.setattr(SeekableStream, "readinto", watched)
    assert [item.id for item in show_documents(str(tmp_path / "out"), "train", 0, count=2)] == ["row-0", "row-1"]
    assert readers == {threading.get_ident()}


def test_line_numbers_count_blank_lines(first_output: Path) -> None:
    for item in show_documents(str(first_output), "val", 0, count=12):
        lines = Path(item.place.uri).read_bytes().split(b"\n")
        assert item.id is not None
        assert item.record is not None
        assert f'"{item.id}"'.encode() in lines[item.record - 1]


@pytest.mark.parametrize("change", ["gone", "changed"])
def test_documents_are_shown_without_their_source(datasets: dict[str, Path], tmp_path: Path, change: str) -> None:
    corpus = _jsonl(tmp_path / "source").finish()
    run_job(make_job(corpus.folder, tmp_path / "out", tokenizer={"name": "bytes"}), options=Options(processes=1))
    if change == "gone":
        shutil.rmtree(corpus.folder)
    else:
        for path in corpus.folder.iterdir():
            path.write_bytes(path.read_bytes() + b"\n")
    shown = show_documents(str(tmp_path / "out"), "train", 0, count=3)
    assert [item.text for item in shown] == list(corpus.documents[:3])
    assert [(item.id, item.position) for item in shown] == [(None, None)] * 3
    assert all(change in item.note for item in shown)


def test_a_document_that_is_not_the_sources_is_shown_as_such(datasets: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(datasets["leading-splits-jsonl-gpt2"], tmp_path / "out")
    planter = Planter(tmp_path / "out")
    del planter.documents[3]
    planter.write()
    shown = show_documents(str(tmp_path / "out"), "val", 0, count=5)
    assert [bool(item.note) for item in shown] == [False] * 3 + [True] * 2
    assert "verify" in shown[3].note


@pytest.mark.parametrize(
    ("split", "token", "reason"),
    [("dev", 0, "SplitUnknown"), ("train", 10**9, "TokenUnknown"), ("train", -1, "TokenUnknown")],
)
def test_a_place_that_is_not_there_is_refused(first_output: Path, split: str, token: int, reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        show_documents(str(first_output), split, token)


def test_a_prefix_without_index_is_no_dataset(tmp_path: Path) -> None:
    corpus = _jsonl(tmp_path / "source").finish()
    job = make_job(corpus.folder, tmp_path / "out", tokenizer={"name": "bytes"})
    with pytest.raises(SpecError, match=r"NotADataset: .*there is nothing"):
        open_dataset(tmp_path / "out")
    with pytest.raises(Stopped):
        run_job(job, options=Options(processes=1), should_stop=lambda: True)
    with pytest.raises(SpecError, match=r"NotADataset: .*there is an unfinished run"):
        open_dataset(tmp_path / "out")
    with pytest.raises(SpecError, match=r"NotADataset: .*none of ours"):
        open_dataset(corpus.folder)


def test_a_damaged_shard_is_named(datasets: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(datasets["text-gpt2"], tmp_path / "out")
    split = open_dataset(tmp_path / "out")["train"]
    (tmp_path / "out" / split.shards[0].path).write_bytes(b"short")
    (tmp_path / "out" / split.shards[1].path).unlink()
    for number in (0, 1):
        with pytest.raises(DataError, match=split.shards[number].path):
            split.shards[number].open()
        with pytest.raises(DataError, match=split.shards[number].path):
            split.tokens(number * SHARD_TOKENS, number * SHARD_TOKENS + 5)


SIDECAR_DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "other magic": lambda data: b"TOKDOCS9" + data[8:],
    "cut in its header": lambda data: data[:40],
    "a field less": lambda data: data.replace(b'"firstFile"', b'"firstPile"'),
    "a field of another kind": lambda data: data.replace(b'"firstFile":0', b'"firstFile":[]'),
    "header no object": lambda data: data[:8] + (2).to_bytes(4, "little") + b"[]  " + data[-40:],
    "header longer than the file": lambda data: data[:8] + b"\xff\xff\xff\x7f" + data[12:],
    "cut in a length": lambda data: data[:-2],
    "a length less": lambda data: data[:-4],
}


@pytest.mark.parametrize("damage", SIDECAR_DAMAGE.values(), ids=SIDECAR_DAMAGE)
def test_bytes_that_are_no_sidecar_are_refused_even_with_their_digest(
    damage: Callable[[bytes], bytes], first_output: Path
) -> None:
    whole = (first_output / SIDECAR).read_bytes()
    damaged = damage(whole)
    assert damaged != whole
    with pytest.raises(DataError, match=f"SidecarCorrupt: {SIDECAR} is damaged: .*\n  next: .*new rerunToken"):
        ShardDocuments.from_bytes(damaged, sha256(damaged).hexdigest(), SIDECAR)


@pytest.mark.parametrize("at", [3, 9, 30, -40, -1], ids=["magic", "header length", "header", "a length", "last length"])
def test_a_damaged_sidecar_is_named_wherever_it_is_read(datasets: dict[str, Path], at: int, tmp_path: Path) -> None:
    output = tmp_path / "out"
    shutil.copytree(datasets["leading-splits-jsonl-gpt2"], output)
    data = bytearray((output / SIDECAR).read_bytes())
    data[at] ^= 1
    (output / SIDECAR).write_bytes(data)
    with pytest.raises(DataError, match=rf"SidecarCorrupt: {output}/{SIDECAR} is damaged"):
        open_dataset(output).locate("val", 0)
    with pytest.raises(DataError, match=rf"SidecarCorrupt: {output}/{SIDECAR} is damaged"):
        show_documents(str(output), "val", 0)
    shown = run_command([str(TOKJOB), "show", str(output), "--split", "val"])
    assert (shown.returncode, "Traceback" in shown.stderr) == (4, False), shown.stderr


def test_a_dataset_in_a_bucket_is_read_shown_and_proved(tmp_path: Path, gcs_uri: str) -> None:  # noqa: F811
    corpus = _jsonl(tmp_path / "source").finish()
    fields: dict[str, Any] = {"tokenizer": {"name": "bytes"}, "output": {"shards": {"tokens": SHARD_TOKENS}}}
    run_job(make_job(corpus.folder, tmp_path / "out", **fields), options=Options(processes=1))
    store = open_store(gcs_uri)
    for path in files_below(tmp_path / "out"):
        create_bytes(store, path, (tmp_path / "out" / path).read_bytes())
    here, there = open_dataset(tmp_path / "out")["train"], open_dataset(gcs_uri)["train"]
    assert np.array_equal(here.tokens(0, len(here)), there.tokens(0, len(there)))
    assert np.array_equal(here.shards[1].open(), there.shards[1].open())
    assert show_documents(gcs_uri, "train", 1000)[0].id == show_documents(str(tmp_path / "out"), "train", 1000)[0].id
    report = verify(gcs_uri, mode="full", processes=1)
    assert not report.findings
    assert report.digest == dataset_digest(str(tmp_path / "out"), processes=1)
