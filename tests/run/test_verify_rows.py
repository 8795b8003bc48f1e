"""`verify` passes rows as a run writes them, and names what was done to them, however well it was covered up."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from support.engine.inline import inline
from support.runs import make_job, read_index
from tokenization_worker import run_job, verify
from tokenization_worker.verification.report import VerifyMode, VerifyReport

MODES = list(VerifyMode)
FORMATS = ["Npy", "Raw", "LlmC", "Megatron"]
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
