"""Every format from one read: each holds the same tokens, byte for byte as an independent writer makes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.corpus import json_lines, take_documents
from support.engine.inline import inline
from support.faults.plant import Planter
from support.format_oracle import SUFFIXES, files_of, read_llmc, read_megatron
from support.runs import difference, make_job, read_index
from tokenization_worker import open_dataset, run_job, verify
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.errors import SpecError, TokenizationError
from tokenization_worker.verification.report import Fault

FORMATS = ["Npy", "Raw", "LlmC", "Megatron"]
SHARD_TOKENS = 5000
DTYPES = {"UInt16": "gpt2", "UInt32": "cl100k_base"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    texts = [*take_documents(60_000), "", "a", ""]
    (folder / "a.jsonl").write_bytes(json_lines(texts[::2]))
    (folder / "b.jsonl").write_bytes(json_lines(texts[1::2]))
    return folder


def job_of(source: Path, output: Path, /, formats: list[str], dtype: str = "UInt16", **fields: Any) -> TokenizationJob:
    layout = {"formats": formats, "shards": {"tokens": SHARD_TOKENS}, **fields.pop("output", {})}
    return make_job(source, output, {"tokenizer": {"name": DTYPES[dtype]}}, output=layout, **fields)


def made(source: Path, output: Path, /, formats: list[str], dtype: str = "UInt16", **fields: Any) -> Path:
    run_job(job_of(source, output, formats, dtype, **fields), executor=inline())
    return output


@pytest.fixture(scope="module", params=DTYPES)
def dataset(source: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    splits = {"splits": [{"name": "test", "shards": 1}, {"name": "train"}]}
    return made(source, tmp_path_factory.mktemp("four") / "out", FORMATS, request.param, output=splits)


def test_four_formats_hold_the_tokens_of_one(source: Path, dataset: Path, tmp_path: Path) -> None:
    """The shards of a job that has the format alone have the same tokens, and the same documents sidecars."""
    dtype = open_dataset(dataset).dtype
    tokens = {path.stem: np.load(path) for path in (dataset / "npy").rglob("*.npy")}
    assert len(tokens) > 3
    assert len({len(each) for each in tokens.values()}) == 2, "a short last shard is missing"
    for stem, expected in tokens.items():
        folder = stem.partition("_")[0]
        assert expected.dtype == dtype
        assert np.array_equal(np.fromfile(dataset / f"raw/{folder}/{stem}.bin", dtype), expected)
        assert np.array_equal(read_llmc(dataset / f"llmc/{folder}/{stem}.bin"), expected)
        documents = read_megatron(dataset / f"megatron/{folder}/{stem}")
        assert all(len(document) for document in documents)
        assert np.array_equal(np.concatenate(documents).view(dtype), expected)
    name = {"<u2": "UInt16", "<u4": "UInt32"}[np.dtype(dtype).str]
    for format in FORMATS:
        splits = {"splits": [{"name": "test", "shards": 1}, {"name": "train"}]}
        alone = made(source, tmp_path / format, [format], name, output=splits)
        for split in ("test", "train"):
            assert difference(alone / split, dataset / format.lower() / split) is None


def test_files_are_those_of_another_writer(dataset: Path, tmp_path: Path) -> None:
    """A planter that knows the source and nothing of our writers writes back the same bytes."""
    before = {path: path.read_bytes() for path in dataset.rglob("*") if path.is_file()}
    Planter(dataset).write()
    after = {path: path.read_bytes() for path in dataset.rglob("*") if path.is_file()}
    changed = [str(path) for path in before if before[path] != after.get(path)]
    assert [path for path in changed if "/ledger/" not in path] == []  # receipts have times
    assert before.keys() == after.keys()
    assert verify(dataset, mode="full", processes=1).findings == ()


def test_megatron_entries_are_documents(source: Path, tmp_path: Path) -> None:
    """Each entry is a document with its delimiter, or its part in the shard."""
    output = made(source, tmp_path / "out", ["Megatron"], output={"shards": {"tokens": 1_000_000}})
    [index] = output.rglob("*.idx")
    entries = read_megatron(index.with_suffix(""))
    documents = list(open_dataset(output)["train"].read_documents(with_delimiter=True))
    assert len(entries) == len(documents) > 20
    assert all(np.array_equal(a, b) for a, b in zip(entries, documents, strict=True))


@pytest.mark.parametrize("format", FORMATS)
def test_the_loader_reads_every_format(format: str, source: Path, dataset: Path, tmp_path: Path) -> None:
    dtype = {2: "UInt16", 4: "UInt32"}[np.dtype(open_dataset(dataset).dtype).itemsize]
    splits = {"splits": [{"name": "test", "shards": 1}, {"name": "train"}]}
    alone = open_dataset(made(source, tmp_path / "out", [format], dtype, output=splits))
    for name in ("test", "train"):
        assert np.array_equal(alone[name][:], open_dataset(dataset)[name][:])


@pytest.mark.parametrize("format", FORMATS)
def test_only_the_file_that_was_damaged_is_written_again(format: str, source: Path, tmp_path: Path) -> None:
    output = made(source, tmp_path / "out", FORMATS)
    whole = {path: (path.read_bytes(), path.stat().st_ino) for path in output.rglob("*_000001.*")}
    assert len(whole) == 5
    victim = output / format.lower() / f"train/train_000001{SUFFIXES[format][-1]}"
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    [finding] = [each for each in verify(output, mode="checksums").findings if each.fault is Fault.SHARD_CHECKSUM][:1]
    assert finding.path == str(victim.relative_to(output))
    run_job(job_of(source, output, FORMATS, rerunToken="again"), executor=inline())
    for path, (content, inode) in whole.items():
        assert path.read_bytes() == content
        assert (path.stat().st_ino == inode) == (path != victim), path
    assert verify(output, mode="full", processes=1).findings == ()


@pytest.mark.parametrize("format", FORMATS[1:])
def test_a_token_that_one_format_has_otherwise_is_found(format: str, source: Path, tmp_path: Path) -> None:
    """All checksums, tables and the index agree with it."""
    output = made(source, tmp_path / "out", FORMATS)
    planter = Planter(output)
    tokens = np.load(output / "npy/train/train_000001.npy")
    tokens[77] += 1
    planter.altered[format, 1] = tokens
    planter.write()
    [finding] = verify(output, mode="checksums").findings
    path = f"{format.lower()}/train/train_000001.bin"
    assert (finding.fault, finding.path, finding.token) == (Fault.FORMATS_DIFFER, path, 77)
    assert finding.found == f"id {tokens[77]:,}"
    assert finding.expected.startswith(f"id {tokens[77] - 1:,}, as in npy/train/train_000001.npy")


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


IDX_FAULTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "version": (lambda data: patched(data, 9, b"\x02"), "the header of an .idx"),
    "type": (lambda data: patched(data, 17, b"\x04"), "the header of an .idx"),
    "length": (lambda data: patched(data, 34, (1).to_bytes(4, "little")), "the lengths of the documents sidecar"),
    "border": (lambda data: data[:-8] + bytes(8), "one document an entry"),
}


@pytest.mark.parametrize(("change", "words"), IDX_FAULTS.values(), ids=IDX_FAULTS)
def test_an_idx_that_does_not_fit_is_found(
    change: Callable[[bytes], bytes], words: str, source: Path, tmp_path: Path
) -> None:
    output = made(source, tmp_path / "out", ["Megatron"])
    victim = output / "train/train_000001.idx"
    victim.write_bytes(change(victim.read_bytes()))
    header = next(each for each in verify(output, mode="checksums").findings if each.fault is Fault.SHARD_HEADER)
    assert header.path == "train/train_000001.idx"
    assert words in header.expected


def test_a_path_may_say_where_each_format_goes(source: Path, tmp_path: Path) -> None:
    output = made(source, tmp_path / "out", ["Npy", "LlmC"], output={"path": "{split}_{index:04d}_{format}"})
    assert sorted(path.name for path in output.glob("train_0001*")) == ["train_0001_llmc.bin", "train_0001_npy.npy"]
    assert verify(output, mode="full", processes=1).findings == ()
    assert read_index(output)["formatVersion"] == 2
    (output / "train_9999_llmc.bin").write_bytes(b"another")
    assert [each.fault for each in verify(output, mode="checksums").findings] == [Fault.UNEXPECTED_FILE]


def test_a_foreign_file_in_the_folder_of_any_format_is_refused(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    (output / "llmc/train").mkdir(parents=True)
    (output / "llmc/train/train_000007.bin").write_bytes(b"another")
    with pytest.raises(TokenizationError, match=r"llmc/train/train_000007\.bin has a name"):
        made(source, output, FORMATS)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ({"formats": ["Raw"], "path": "{split}/{index}.bin"}, "each format adds its suffix"),
        ({"formats": ["Megatron"], "path": "{split}/{index}.idx"}, "each format adds its suffix"),
        ({"formats": ["LlmC"], "shards": {"tokens": 2**31}}, "at most 2,147,483,647 tokens a shard"),
        ({"formats": ["Raw", "Raw"]}, "listed twice"),
        ({"formats": ["Bin"]}, "Npy"),
    ],
)
def test_what_no_format_can_have_is_refused(output: dict[str, Any], words: str, source: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=words):
        make_job(source, tmp_path / "out", output=output)


def test_the_oracle_is_not_our_writer() -> None:
    """Bytes by hand: three tokens of two documents."""
    tokens = np.array([1, 2, 515], "<u2")
    assert files_of("Raw", tokens, [2, 1]) == [b"\x01\x00\x02\x00\x03\x02"]
    [llmc] = files_of("LlmC", tokens, [2, 1])
    assert llmc[:12] == bytes.fromhex("88d8340101000000 03000000".replace(" ", ""))
    assert (len(llmc), llmc[1024:]) == (1030, b"\x01\x00\x02\x00\x03\x02")
