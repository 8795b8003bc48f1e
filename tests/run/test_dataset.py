"""Reading a finished dataset: tokens, shards, and the document behind a token."""

from __future__ import annotations

import ast
import gc
import pickle
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.corpus import CorpusWriter, take_documents, zstd
from support.faults.plant import Document, Planter
from support.forks import exit_code_of_fork
from support.runs import TOKJOB, files_below, make_job, read_index, run_command, write_index
from support.stores.gcs_emulator import gcs_bucket, gcs_host, gcs_uri  # noqa: F401  fixtures
from tokenization_worker.dataset import token_stream
from tokenization_worker.dataset.dataset import open_dataset
from tokenization_worker.dataset.shard import Shard
from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.errors import ChangedError, DataError, SpecError
from tokenization_worker.formats.sidecar import ShardDocuments
from tokenization_worker.inspect import show
from tokenization_worker.inspect.clean import clean_output
from tokenization_worker.inspect.show import show_documents
from tokenization_worker.inspect.status import read_status
from tokenization_worker.inspect.unusable_documents import read_unusable
from tokenization_worker.output.create_only import create_bytes
from tokenization_worker.readers.document_batch import CorruptFileError, FileOutcome
from tokenization_worker.readers.parquet.file import SizedFile
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.storage.open import open_store
from tokenization_worker.verification.verify import dataset_digest, verify

pytestmark = pytest.mark.slow

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


SLICES = [
    slice(None),
    slice(5, 10),
    slice(SHARD_TOKENS - 3, SHARD_TOKENS + 3),
    slice(-20, None),
    slice(None, -20),
    slice(10, 5),
    slice(0, 10**12),
    slice(3, 2 * SHARD_TOKENS, 250),
    slice(None, None, -1),
    slice(2 * SHARD_TOKENS, 3, -250),
]


@pytest.mark.parametrize("wanted", SLICES, ids=repr)
def test_a_split_is_sliced_as_an_array_is(output: Path, wanted: slice) -> None:
    for split in open_dataset(output).values():
        whole = split.tokens(0, len(split))
        assert split[wanted].tolist() == whole[wanted].tolist()
        assert split[wanted].dtype == whole.dtype


def test_a_split_is_indexed_as_a_sequence_is(first_output: Path) -> None:
    split = open_dataset(first_output)["train"]
    whole = split.tokens(0, len(split)).tolist()
    assert [split[0], split[-1], split[SHARD_TOKENS]] == [whole[0], whole[-1], whole[SHARD_TOKENS]]
    assert list(split) == whole
    for outside in (len(split), -len(split) - 1):
        with pytest.raises(IndexError, match="train"):
            split[outside]
    with pytest.raises(TypeError, match=r"1\.5"):
        split[1.5]  # type: ignore[call-overload]


def test_a_split_is_an_array_where_numpy_asks_for_one(output: Path) -> None:
    for split in open_dataset(output).values():
        whole = split.tokens(0, len(split))
        assert np.array_equal(np.asarray(split), whole)
        assert np.asarray(split).dtype == whole.dtype
        assert np.array_equal(np.asarray(split, dtype=np.int64), whole.astype(np.int64))
        changed = np.array(split)
        changed[:] = 0
        assert np.array_equal(np.asarray(split), whole)


def test_a_split_of_one_shard_becomes_an_array_without_a_copy(tmp_path: Path) -> None:
    corpus = _jsonl(tmp_path / "source").finish()
    run_job(make_job(corpus.folder, tmp_path / "out", tokenizer={"name": "bytes"}), options=Options(processes=1))
    split = open_dataset(tmp_path / "out")["train"]
    assert isinstance(np.asarray(split).base, np.memmap)
    assert np.asarray(split).base is not None
    assert not np.shares_memory(np.array(split), np.asarray(split))
    with pytest.raises(ValueError, match="copy"):
        split.__array__(np.dtype(np.int64), copy=False)


def test_documents_are_read_whole_across_shards_and_each_in_one_split(output: Path) -> None:
    dataset, planter = open_dataset(output), Planter(output)
    for stream in {split.stream.number for split in dataset.values()}:
        expected = [list(document.tokens) for document in planter.in_stream(stream) if document.tokens]
        splits = [split for split in dataset.values() if split.stream.number == stream]
        read = [document.tolist() for split in splits for document in split.read_documents(with_delimiter=True)]
        assert read == expected
    for split in dataset.values():
        assert len(list(split.read_documents())) == split.documents


def test_documents_are_read_without_their_delimiter(output: Path) -> None:
    dataset = open_dataset(output)
    delimiter = dataset.index["data"]["tokenizer"]["delimiter"]
    cut = {"Before": slice(1, None), "After": slice(None, -1), "None": slice(None)}[delimiter["position"]]
    for split in dataset.values():
        whole = [document.tolist()[cut] for document in split.read_documents(with_delimiter=True)]
        bare = list(split.read_documents())
        assert [document.tolist() for document in bare] == whole
        assert all(dataset.delimiter_id not in document for document in bare)


def test_a_document_that_was_read_holds_no_other_in_memory(first_output: Path) -> None:
    for document in open_dataset(first_output)["train"].read_documents():
        assert document.flags.owndata
        assert document.flags.writeable


def test_tokens_are_decoded_with_the_tokenizer_of_the_dataset(first_output: Path) -> None:
    dataset = open_dataset(first_output)
    shown = show_documents(str(first_output), "train", 0, count=4)[1:]  # the first began in another split
    documents = dataset["train"].read_documents()
    assert [dataset.decode(next(documents)) for _ in shown] == [item.text for item in shown]
    assert dataset.decode([dataset.delimiter_id or 0]) == "<|endoftext|>"
    assert dataset.decode(dataset["train"][0]) == dataset.decode([int(dataset["train"][0])])
    assert pickle.loads(pickle.dumps(dataset)).decode(dataset["train"][:9]) == dataset.decode(dataset["train"][:9])


def test_tokens_are_not_decoded_with_another_tokenizer(first_output: Path) -> None:
    dataset = open_dataset(first_output)
    dataset.index["tokenizer"]["fingerprint"] = "0" * 64
    with pytest.raises(ChangedError, match=r"TokenizerChanged: gpt2 .*0000.*\n  next: "):
        dataset.decode([1])


def test_a_split_that_is_not_there_is_answered_with_those_that_are(first_output: Path) -> None:
    dataset = open_dataset(first_output)
    with pytest.raises(SpecError, match=r"SplitUnknown: .* has no split 'valid'\n  next: .*val, train") as caught:
        dataset["valid"]
    assert isinstance(caught.value, KeyError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))
    assert "valid" not in dataset
    assert dataset.get("valid") is None


def test_windows_open_each_shard_once_and_few_at_a_time(first_output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_stream, "most_maps", lambda: 3)
    opened: list[str] = []
    open_shard = Shard.open
    monkeypatch.setattr(Shard, "open", lambda shard: (opened.append(shard.path), open_shard(shard))[1])
    before = maps_below(first_output)
    split = open_dataset(first_output)["train"]
    assert len(split.shards) > 5
    for _ in range(3):
        for number in (0, 1, 0, 2):
            split.tokens(number * SHARD_TOKENS, number * SHARD_TOKENS + 5)
    assert opened == [split.shards[number].path for number in (0, 1, 2)]
    split.tokens(0, len(split))
    assert maps_below(first_output) - before <= 3
    split.tokens(len(split) - 1, len(split))
    opened.clear()
    split.tokens(len(split) - 1, len(split))
    assert not opened, "the shard used last is the last to be closed"
    del split
    gc.collect()
    assert maps_below(first_output) <= before


def maps_below(folder: Path) -> int:
    """Files below `folder` that this process has mapped."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return len({line.split()[-1] for line in lines if line.split()[-1].startswith(f"{folder}/")})


def test_a_split_can_be_sent_alone_and_reads_its_own_shards(datasets: dict[str, Path]) -> None:
    """Streams of one process are told apart by number; those that come from another one must not take its numbers."""
    splits = [open_dataset(output)["train"] for output in datasets.values()]
    wanted = [split.tokens(0, 5).tolist() for split in splits]
    again = [pickle.loads(pickle.dumps(split)) for split in reversed(splits)]
    assert [split.tokens(0, 5).tolist() for split in reversed(again)] == wanted
    assert [split.tokens(0, 5).tolist() for split in splits] == wanted


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns a thousand times as often as they do, so that they meet in the middle of each other's work."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(before / 1000)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_threads")
def test_threads_and_forks_read_the_same_tokens(first_output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_stream, "most_maps", lambda: 2)
    split = open_dataset(first_output)["train"]
    whole = np.concatenate([np.load(first_output / shard.path) for shard in split.shards])

    def is_right(start: int) -> bool:
        return np.array_equal(split.tokens(start, start + 900), whole[start : start + 900])

    starts = np.random.default_rng(0).integers(len(split) - 900, size=400).tolist()
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(is_right, starts)
        assert exit_code_of_fork(lambda: all(map(is_right, starts))) == 0, "forked while threads read"
        assert all(answers)
    assert exit_code_of_fork(lambda: all(map(is_right, starts))) == 0


def test_no_header_of_a_shard_is_parsed(first_output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy parses a header as Python, which Python 3.11 cannot do in two threads at once."""
    parsed: list[str] = []

    def note(source: str, *arguments: Any, **named: Any) -> Any:
        parsed.append(source)
        raise SyntaxError

    monkeypatch.setattr(ast, "literal_eval", note)
    split = open_dataset(first_output)["train"]
    assert len(split.tokens(0, len(split))) == len(split) > 0
    assert parsed == []


def test_a_shard_with_tokens_of_another_width_is_damaged(datasets: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(datasets["text-gpt2"], tmp_path / "out")
    split = open_dataset(tmp_path / "out")["train"]
    np.save(tmp_path / "out" / split.shards[0].path, np.zeros(SHARD_TOKENS, np.uint32))
    with pytest.raises(DataError, match=f"{split.shards[0].path} has another header .* of 700 tokens of uint16: .*<u4"):
        split.tokens(0, 5)


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (5, 4), (0, 10**9)])
def test_tokens_outside_of_a_split_are_refused(first_output: Path, start: int, end: int) -> None:
    split = open_dataset(first_output)["train"]
    expected = f"[{start:,}, {end:,}): expected 0 <= start <= end <= {len(split):,}, the length of split 'train'"
    with pytest.raises(IndexError, match=re.escape(expected)):
        split.tokens(start, end)


def test_a_token_outside_of_a_split_is_refused(first_output: Path) -> None:
    dataset = open_dataset(first_output)
    size = f"{len(dataset['train']):,}"
    with pytest.raises(IndexError, match=f"token 2,000,000: expected -{size} <= token < {size}, the length of split"):
        dataset["train"][2_000_000]
    with pytest.raises(IndexError, match=f"token -1: expected 0 <= token < {size}, the length of split 'train'"):
        dataset.locate("train", -1)


NO_TOKENS: dict[str, tuple[Any, str]] = {
    "too large": ([5, 70_000], "decode: token 70,000: expected 0 to 50,256"),
    "negative": (-1, "decode: token -1: expected 0 to 50,256"),
    "two rows": ([[1, 2], [3, 4], [5, 6]], "decode: expected one token or a row of tokens, found an array of 3 x 2"),
    "text": ("words", "decode: expected tokens, which are whole numbers, found 'words'"),
    "fractions": ([0.5], r"decode: expected tokens, which are whole numbers, found \[0.5\]"),
}


@pytest.mark.parametrize(("tokens", "words"), NO_TOKENS.values(), ids=NO_TOKENS.keys())
def test_what_is_no_token_is_not_decoded(first_output: Path, tokens: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        open_dataset(first_output).decode(tokens)


def test_no_tokens_are_no_text(first_output: Path) -> None:
    assert open_dataset(first_output).decode([]) == ""


def test_an_output_may_be_a_path_object(first_output: Path) -> None:
    assert verify(first_output, mode="checksums").is_clean
    assert dataset_digest(first_output) == open_dataset(first_output).index["digest"]
    assert read_status(first_output).phase == "Complete"
    assert list(read_unusable(first_output)) == list(read_unusable(str(first_output)))
    with pytest.raises(ChangedError, match="DatasetCommitted"):
        clean_output(first_output, dry_run=True)


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
    read = SizedFile.read
    readers: set[int] = set()

    def watched(file: SizedFile, size: int = -1) -> bytes:
        readers.add(threading.get_ident())
        return read(file, size)

    monkeypatch.setattr(SizedFile, "read", watched)
    assert [item.id for item in show_documents(str(tmp_path / "out"), "train", 0, count=2)] == ["row-0", "row-1"]
    assert readers == {threading.get_ident()}


def test_ids_that_have_no_value_in_python_are_shown(tmp_path: Path) -> None:
    """pyarrow has no Python value for a time that is no whole number of microseconds."""
    (tmp_path / "source").mkdir()
    ids = pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns"))
    pq.write_table(pa.table({"id": ids, "text": ["alpha", "beta"]}), tmp_path / "source" / "a.parquet")
    run_job(make_job(tmp_path / "source", tmp_path / "out", tokenizer={"name": "bytes"}), options=Options(processes=1))
    shown = show_documents(str(tmp_path / "out"), "train", 0, count=2)
    assert [item.id for item in shown] == ["2023-11-14 22:13:20.123456789", f"{tmp_path}/source/a.parquet@1"]


def test_an_id_that_cannot_be_read_is_no_reason_to_show_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = _parquet(tmp_path / "source").finish()
    run_job(make_job(corpus.folder, tmp_path / "out", tokenizer={"name": "bytes"}), options=Options(processes=1))

    def corrupt(*_: object) -> str:
        raise CorruptFileError(FileOutcome.CORRUPT_FILE, 1, "Parquet: a page of the id is broken")

    monkeypatch.setattr(show, "read_cell", corrupt)
    [shown] = show_documents(str(tmp_path / "out"), "train", 0)
    assert (shown.text, shown.id, shown.position) == (corpus.documents[0], None, 0)
    assert shown.note == "the id cannot be read: Parquet: a page of the id is broken"


def test_line_numbers_count_blank_lines(first_output: Path) -> None:
    for item in show_documents(str(first_output), "val", 0, count=12):
        lines = Path(item.place.uri).read_bytes().split(b"\n")
        assert item.id is not None
        assert item.record is not None
        assert f'"{item.id}"'.encode() in lines[item.record - 1]


@pytest.mark.parametrize("change", ["does not exist", "changed"])
def test_documents_are_shown_without_their_source(datasets: dict[str, Path], tmp_path: Path, change: str) -> None:
    corpus = _jsonl(tmp_path / "source").finish()
    run_job(make_job(corpus.folder, tmp_path / "out", tokenizer={"name": "bytes"}), options=Options(processes=1))
    if change == "does not exist":
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
    with pytest.raises(SpecError, match=r"NotADataset: .*does not exist"):
        open_dataset(tmp_path / "out")
    with pytest.raises(Stopped):
        run_job(job, options=Options(processes=1), should_stop=lambda: True)
    with pytest.raises(SpecError, match=r"NotADataset: .*found an unfinished run"):
        open_dataset(tmp_path / "out")
    with pytest.raises(SpecError, match=r"NotADataset: .*none that tokjob wrote"):
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
    with pytest.raises(DataError, match=f"SidecarCorrupt: {SIDECAR} is corrupt: .*\n  next: .*new rerunToken"):
        ShardDocuments.from_bytes(damaged, sha256(damaged).hexdigest(), SIDECAR)


@pytest.mark.parametrize("at", [3, 9, 30, -40, -1], ids=["magic", "header length", "header", "a length", "last length"])
def test_a_damaged_sidecar_is_named_wherever_it_is_read(datasets: dict[str, Path], at: int, tmp_path: Path) -> None:
    output = tmp_path / "out"
    shutil.copytree(datasets["leading-splits-jsonl-gpt2"], output)
    data = bytearray((output / SIDECAR).read_bytes())
    data[at] ^= 1
    (output / SIDECAR).write_bytes(data)
    with pytest.raises(DataError, match=rf"SidecarCorrupt: {output}/{SIDECAR} is corrupt"):
        open_dataset(output).locate("val", 0)
    with pytest.raises(DataError, match=rf"SidecarCorrupt: {output}/{SIDECAR} is corrupt"):
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


# --- damage


def rewrite(output: Path, table: str, old: bytes, new: bytes) -> None:
    """Change a table as zstd does not notice."""
    rows = zstd.decompress((output / table).read_bytes())
    assert old in rows
    (output / table).write_bytes(zstd.compress(rows.replace(old, new, 1)))


@pytest.fixture
def copied(datasets: dict[str, Path], tmp_path: Path) -> Path:
    shutil.copytree(datasets["leading-splits-jsonl-gpt2"], tmp_path / "out")
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"tokens":700', b'"tokens":701'),
        (b'"index":0', b'"index":9'),
        (b'"documents":', b'"docunents":'),
        (b'"split":"val"', b'"split":"vel"'),
        (b'"split":"val"', b'"split":[]'),
        (b"{", b"["),
    ],
)
def test_a_shards_table_that_is_not_the_index_s_is_refused(copied: Path, old: bytes, new: bytes) -> None:
    rewrite(copied, "shards.jsonl.zst", old, new)
    with pytest.raises(DataError, match=rf"TableCorrupt: {copied}/shards.jsonl.zst is corrupt: .*\n  next: restore it"):
        open_dataset(copied)


FILES_TABLE = "_tokenization/files.jsonl.zst"


@pytest.mark.parametrize("is_older", [True, False])
@pytest.mark.parametrize(
    ("old", "new"), [(b'"tokens":[', b'"tokens":[1,'), (b'"tokens":', b'"takens":'), (b'"uri":"', b'"uri":7,"x":"')]
)
def test_a_files_table_that_is_not_the_index_s_is_refused_when_it_is_needed(
    copied: Path, old: bytes, new: bytes, is_older: bool
) -> None:
    if is_older:  # written before the index knew what the files table holds
        index = read_index(copied)
        del index["run"]["filesDigest"]
        write_index(copied, index)
    rewrite(copied, FILES_TABLE, old, new)
    dataset = open_dataset(copied)
    assert len(dataset["train"].tokens(0, 10)) == 10
    for ask in (lambda: dataset.locate("train", 0), lambda: dataset.source_file("a")):
        with pytest.raises(
            DataError, match=rf"TableCorrupt: {copied}/{FILES_TABLE} is corrupt: .*\n  next: restore it"
        ):
            ask()


def test_no_shard_and_no_sidecar_is_read_to_open_a_dataset(copied: Path) -> None:
    for path in [*copied.rglob("*.npy"), *(copied / "_tokenization/documents").rglob("0*"), copied / FILES_TABLE]:
        path.unlink()
    assert len(open_dataset(copied)["train"]) > 0


@pytest.mark.parametrize("at", [0, 6, 8, 20, 60, 127])
def test_a_shard_with_another_header_is_refused(copied: Path, at: int) -> None:
    split = open_dataset(copied)["val"]
    path = copied / split.shards[1].path
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    assert len(split.tokens(0, SHARD_TOKENS)) == SHARD_TOKENS
    for ask in (split.shards[1].open, lambda: split.tokens(SHARD_TOKENS - 1, SHARD_TOKENS + 1)):
        with pytest.raises(DataError, match=rf"ShardDamaged: {path} has another header than that of 700 tokens"):
            ask()


@pytest.mark.parametrize("change", [lambda data: data + b"xx", lambda data: data[:-2]])
def test_a_shard_of_another_size_is_refused(copied: Path, change: Callable[[bytes], bytes]) -> None:
    split = open_dataset(copied)["val"]
    path = copied / split.shards[0].path
    path.write_bytes(change(path.read_bytes()))
    for ask in (split.shards[0].open, lambda: split.tokens(0, 1)):
        with pytest.raises(DataError, match=rf"ShardDamaged: {path} has 1,5[0-9]+ bytes, expected 1,528"):
            ask()


FORK = """
import os, threading

held = []

def look():
    def take():
        held.append(not recently_used._lock.acquire(blocking=False))
    thread = threading.Thread(target=take)
    thread.start()
    thread.join()

os.register_at_fork(before=look)  # of the functions before a fork, the one that was registered first runs last
from tokenization_worker.dataset import recently_used

child = os.fork()
if not child:
    os._exit(0 if recently_used._lock.acquire(blocking=False) else 1)
print(held, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), recently_used._lock.acquire(blocking=False))
"""


def test_no_thread_holds_the_lock_of_the_maps_while_the_process_forks() -> None:
    """A child that finds it held by a thread that the child does not have would wait for ever."""
    found = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    assert found.stdout.split("\n")[0] == "[True] 0 True"
