"""The names of a plan's shards, and which files of such names are none of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tokenization_worker.api.data import DType
from tokenization_worker.errors import ChangedError, SpecError
from tokenization_worker.output.naming import Naming, name_files, require_known_formats
from tokenization_worker.storage.local.store import LocalStore

PATH = "{split}/{split}_{index:06d}"
SPLITS = ("val", "train")


def naming(path: str = PATH, formats: tuple[str, ...] = ("Npy",), tokens: int = 100) -> Naming:
    return Naming(path, formats, SPLITS, DType.UINT16, tokens, 0)


@pytest.mark.parametrize(
    ("path", "formats", "files"),
    [
        (PATH, ["Npy"], ["train/train_000003.npy"]),
        ("shard-{shard:05d}", ["Raw"], ["shard-00012.bin"]),
        (PATH, ["Npy", "Parts"], ["train/train_000003.npy", "parts/train/train_000003.npy"]),
        ("{split}/{format}-{index:02d}", ["Npy", "Parts"], ["train/npy-03.npy", "train/parts-03.npy"]),
        (PATH, ["Npy", "Raw"], ["npy/train/train_000003.npy", "raw/train/train_000003.bin"]),
        (
            "{split}/{format}-{index:02d}",
            ["Megatron", "Npy"],
            ["train/megatron-03.bin", "train/megatron-03.idx", "train/npy-03.npy"],
        ),
    ],
    ids=[
        "one format",
        "counted over splits",
        "rows",
        "rows where the path says",
        "a folder for each format",
        "where the path says",
    ],
)
def test_files_are_named_by_the_path_with_the_main_file_first(path: str, formats: list[str], files: list[str]) -> None:
    names = name_files(path, formats, split="train", index=3, shard=12)
    assert [name.path for name in names] == files
    assert names == naming(path, tuple(formats)).files(split="train", index=3, shard=12)
    assert list(dict.fromkeys(name.format for name in names)) == formats
    assert [name.number for name in names if name.format == "Megatron"] == [0, 1][: 2 * ("Megatron" in formats)]


def test_a_number_that_does_not_fit_the_path_is_refused() -> None:
    assert name_files("{split}/{index:01d}", ["Npy"], split="train", index=9, shard=9)
    with pytest.raises(SpecError, match="has 1 digit for shard 10"):
        name_files("{split}/{index:01d}", ["Npy"], split="train", index=10, shard=10)


@pytest.mark.parametrize(
    ("path", "is_given"),
    [
        ("train/train_000003.npy", True),
        ("val/val_999999.npy", True),
        ("train/val_000003.npy", False),
        ("test/test_000003.npy", False),
        ("train/train_0000003.npy", False),
        ("train/train_000003.bin", False),
        ("train/train_000003.npy.bak", False),
        ("old/train/train_000003.npy", False),
    ],
)
def test_names_of_these_splits_alone_are_given(path: str, is_given: bool) -> None:
    assert naming().is_given(path) is is_given


def test_listed_are_the_names_of_any_shard_and_strictly_those_of_these_splits(tmp_path: Path) -> None:
    files = ["train/train_000000.npy", "test/test_000000.npy", "train/train_00.npy", "train/notes.npy", "val.npy"]
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    store = LocalStore(tmp_path)
    assert {entry.path for entry in naming().list_named(store)} == set(files[:3])
    assert [entry.path for entry in naming().list_named(store, strictly=True)] == files[:1]


@pytest.mark.parametrize(
    ("path", "array", "words"),
    [
        ("train/train_000000.npy", np.arange(100, dtype="<u2"), None),
        ("train/train_000000.npy", np.arange(30, dtype="<u2"), None),
        ("train/train_000000.npy", np.arange(101, dtype="<u2"), "no unfinished shard of this run has 330 bytes"),
        ("train/train_000000.npy", np.arange(100, dtype="<i2"), "it does not begin with the header of a shard"),
        ("test/test_000000.npy", np.arange(100, dtype="<u2"), "no shard of this run gets this name"),
    ],
    ids=["may be ours", "may be ours, too", "too large", "another type", "another split"],
)
def test_a_file_with_a_shards_name_is_told_apart(
    path: str, array: np.ndarray, words: str | None, tmp_path: Path
) -> None:
    (tmp_path / path).parent.mkdir()
    np.save(tmp_path / path, array)
    store = LocalStore(tmp_path)
    [entry] = naming().list_named(store)
    why = naming().why_foreign(store, entry, [30, 100])
    assert (why is None) == (words is None)
    assert (why or "").startswith(words or "")


def test_a_file_that_went_meanwhile_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train/train_000000.npy").write_bytes(b"x" * 328)
    store = LocalStore(tmp_path)
    [entry] = naming().list_named(store)
    assert naming().why_foreign(store, entry, [100]) is not None
    (tmp_path / "train/train_000000.npy").unlink()
    assert naming().why_foreign(store, entry, [100]) is None


def test_no_file_is_ours_where_every_shard_that_was_begun_has_a_receipt(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    np.save(tmp_path / "train/train_000000.npy", np.arange(100, dtype="<u2"))
    store = LocalStore(tmp_path)
    [entry] = naming().list_named(store)
    assert naming().why_foreign(store, entry, []) == "every shard that a run began has one"


def test_a_plan_is_read_as_it_was_written() -> None:
    splits = [{"name": name} for name in SPLITS]
    output = {"path": PATH, "formats": ["Npy"], "splits": splits, "dtype": "UInt16", "shards": {"tokens": 100}}
    assert Naming.planned({"output": output}) == naming()
    rows = output | {"shards": {"sequences": 10}, "sequence": {"length": 7, "packing": "Concat"}}
    planned = Naming.planned({"output": rows})
    assert (planned.kinds, planned.shard_tokens, planned.row_length) == (("Npy", "Parts"), 70, 7)
    rows["sequence"]["packing"] = "BestFit"
    assert Naming.planned({"output": rows}).shard_tokens > 2**60
    with pytest.raises(ValueError, match="no format 'Parchment'"):
        Naming.planned({"output": output | {"formats": ["Parchment"]}})


def test_a_format_that_this_version_lacks_is_named() -> None:
    require_known_formats(["Npy", "Raw"], "gs://b/out", "index.json")
    with pytest.raises(ChangedError, match=r"gs://b/out/index.json has shards in the format Parchment; this program"):
        require_known_formats(["Npy", "Parchment"], "gs://b/out", "index.json")
