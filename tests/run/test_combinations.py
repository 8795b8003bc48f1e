"""Every combination of formats, groups, splits and rows is written, verified, loaded and repaired.

What is loaded is compared with a loop over the documents. The group `tiny` has no document in the test split by share.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.corpus import json_lines
from support.engine.inline import inline
from support.runs import difference, make_job, read_index
from tokenization_worker import open_dataset, run_job, verify
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.dataset.split import Split
from tokenization_worker.events import Event, Warned

FORMATS = {
    **{name: [name] for name in ("Npy", "Raw", "LlmC", "Megatron", "WebDataset")},
    "all": ["Npy", "Raw", "LlmC", "Megatron", "WebDataset"],
}
GROUPS = {"none": "{split}/{index:05d}", "joined": "{split}/{index:05d}", "apart": "{group}/{split}/{index:05d}"}
SPLITS: dict[str, list[dict[str, Any]]] = {
    "one": [{"name": "train"}],
    "leading": [{"name": "test", "shards": 1}, {"name": "train"}],
    "shares": [{"name": "test", "share": "20%"}, {"name": "val", "share": "20%"}, {"name": "train"}],
}
SHARD_TOKENS, LENGTH = 640, 64
DELIMITER = 256


def is_possible(formats: str, groups: str, splits: str, rows: str) -> bool:
    del groups, splits
    return rows == "rows" or "WebDataset" not in FORMATS[formats]


COMBINATIONS = [case for case in product(FORMATS, GROUPS, SPLITS, ("flat", "rows")) if is_possible(*case)]


@pytest.fixture(scope="module")
def texts() -> dict[str, list[str]]:
    """By group. Those of `tiny` fall into `train` alone, by the hash that decides about splits."""
    chance = random.Random(4)

    def draw(number: int) -> Iterator[str]:
        for _ in range(number):
            yield "".join(chance.choices("abc \n", k=chance.randrange(300)))

    in_train = [text for text in draw(40) if split_of(text, "shares") == "train"]
    return {"web": list(draw(60)), "tiny": in_train[:12], "code": list(draw(30))}


@pytest.fixture(scope="module")
def source(texts: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    for number, (group, mine) in enumerate(texts.items()):  # in the order of names, too
        (folder / f"{number}-{group}").mkdir()
        (folder / f"{number}-{group}" / "a.jsonl").write_bytes(json_lines(mine[:5]))
        (folder / f"{number}-{group}" / "b.jsonl").write_bytes(json_lines(mine[5:]))
    return folder


def split_of(text: str, splits: str) -> str:
    if splits != "shares":
        return "train"
    share = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") / 2**64
    return "test" if share < 0.2 else "val" if share < 0.4 else "train"


def job_of(
    source: Path, output: Path, formats: str, groups: str, splits: str, rows: str, **fields: str
) -> TokenizationJob:
    folders = sorted(source.iterdir())
    named = [{"name": folder.name[2:], "uris": [str(folder)]} for folder in folders]
    layout = {
        "formats": FORMATS[formats],
        "path": GROUPS[groups],
        "splits": SPLITS[splits],
        **({"sequence": {"length": LENGTH}} if rows == "rows" else {}),
        "shards": {"sequences": SHARD_TOKENS // LENGTH} if rows == "rows" else {"tokens": SHARD_TOKENS},
    }
    reads = {"uris": [str(folder) for folder in folders]} if groups == "none" else {"uris": None, "groups": named}
    return make_job(source, output, source=reads, tokenizer={"name": "bytes"}, output=layout, **fields)


def expected(texts: dict[str, list[str]], groups: str, splits: str, rows: str) -> dict[str, dict[str, list[int]]]:
    """The tokens of each part of each split, padding included; the parts are groups where these are in paths."""
    runs = texts if groups == "apart" else {"": [text for mine in texts.values() for text in mine]}
    names = [split["name"] for split in SPLITS[splits]]
    parts: dict[str, dict[str, list[int]]] = {name: {} for name in names}
    for group, mine in runs.items():
        for name in names if splits == "shares" else ["train"]:
            ids = [token for text in mine if split_of(text, splits) == name for token in (DELIMITER, *text.encode())]
            if rows == "rows":
                ids += [DELIMITER] * (-len(ids) % LENGTH)
            parts[name][group] = ids
        if splits == "leading":
            ids = parts["train"][group]
            parts["test"][group], parts["train"][group] = ids[:SHARD_TOKENS], ids[SHARD_TOKENS:]
    return parts


def read_tokens(split: Split, rows: str) -> list[int]:
    found: list[int] = np.asarray(split).tolist()
    if rows == "rows":
        assert split.rows[:].ravel().tolist() == found
    return found


@pytest.mark.sampled(23, of=lambda params: (params["groups"], params["splits"], params["formats"] == "WebDataset"))
@pytest.mark.parametrize(("formats", "groups", "splits", "rows"), COMBINATIONS)
def test_each_combination_is_written_verified_loaded_and_repaired(
    formats: str, groups: str, splits: str, rows: str, source: Path, texts: dict[str, list[str]], tmp_path: Path
) -> None:
    output, events = tmp_path / "out", list[Event]()
    job = job_of(source, output, formats, groups, splits, rows)
    run_job(job, executor=inline(), on_progress=events.append)
    parts = expected(texts, groups, splits, rows)
    told = [event.message for event in events if isinstance(event, Warned) and "no document falls" in event.message]
    empty = [name for name, mine in parts.items() if not all(mine.values())]
    assert told == [f"split {name!r} of group tiny has no shards: no document falls into its share" for name in empty]

    assert verify(str(output), mode="full", processes=1).findings == ()
    dataset = open_dataset(output)
    for name, mine in parts.items():
        assert read_tokens(dataset[name], rows) == [token for tokens in mine.values() for token in tokens]
        for group, tokens in mine.items() if groups == "apart" else ():
            assert read_tokens(dataset[name].groups[group], rows) == tokens
    assert sum(split["tokens"] for split in read_index(output)["splits"]) == sum(
        1 + len(text.encode()) for mine in texts.values() for text in mine
    )

    for path in damage(output):
        path.unlink()
    assert not verify(str(output), mode="checksums", processes=1).is_clean
    run_job(job_of(source, output, formats, groups, splits, rows, rerunToken="2"), executor=inline())
    assert verify(str(output), mode="full", processes=1).findings == ()
    run_job(job_of(source, tmp_path / "again", formats, groups, splits, rows), executor=inline())
    assert difference(output, tmp_path / "again") is None


def damage(output: Path) -> list[Path]:
    """A file of each kind in folders of shards: one of each format, of parts, and of the lists of shards."""
    files = {path.suffix: path for path in sorted(output.glob("*/**/*")) if path.is_file()}
    return [path for path in files.values() if "_tokenization" not in path.parts]
