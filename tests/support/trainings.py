"""Trainings for tests: of a small source of code and odd texts, counted in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.corpus import gzip_members, json_lines, take_documents, zstd_frames
from support.engine.inline import InlineExecutor
from tokenization_worker.api.training.manifest import TokenizerTraining
from tokenization_worker.events import TrainingFinished
from tokenization_worker.run.training.train import TrainOptions, train_tokenizer

SPECIALS = ["<|endoftext|>", "<|end", "text|>"]
VOCABULARY = 700

Executor = Callable[[], InlineExecutor]


@pytest.fixture(autouse=True)
def few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are tried on few random texts: 20,000 take a second for each tokenizer. For modules that import this."""
    for room in ("export", "model_export"):
        monkeypatch.setattr(f"tokenization_worker.run.training.{room}.SOUPS", 300)


def inline(before: Callable[[Any], None] = lambda task: None) -> Executor:
    return lambda: InlineExecutor(before, 1)


def texts_of(part: int) -> list[str]:
    """Documents of source code, some of them with special tokens, which overlap; and odd ones."""
    texts = take_documents(120_000, first=part * 40)
    texts[3] += "<|endoftext|> and <|endtext|>" + " " * 3000 + "<|end<|end"
    return [*texts, "", "日本語の文" * 400, "<|endoftext|>", "'s'S 12345 ſ\r\n\r\n  x"]


def write_source(folder: Path) -> Path:
    """Three files of `texts_of`, plain and compressed."""
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(json_lines(texts_of(0)))
    (folder / "b.jsonl.zst").write_bytes(zstd_frames(json_lines(texts_of(1)), frames=3))
    (folder / "c.jsonl.gz").write_bytes(gzip_members(json_lines(texts_of(2)), members=2))
    return folder


def training(source: Path, output: Path, /, **changes: Any) -> TokenizerTraining:
    """A training; `changes` by dotted path with `__` in place of the dot."""
    spec: dict[str, Any] = {
        "source": {"uris": [str(source)]},
        "tokenizer": {"vocabSize": VOCABULARY, "specialTokens": SPECIALS},
        "output": {"uri": str(output)},
    }
    for path, value in changes.items():
        block, _, name = path.partition("__")
        if name:
            spec.setdefault(block, {})[name] = value
        else:
            spec[block] = value
    return TokenizerTraining.model_validate(
        {
            "apiVersion": "tokenization.dev/v1alpha1",
            "kind": "TokenizerTraining",
            "metadata": {"name": "test"},
            "spec": spec,
        }
    )


def train(
    source: Path, output: Path, /, executor: Executor | None = None, *, until_counts: bool = False, **changes: Any
) -> TrainingFinished:
    options = TrainOptions(processes=1, until_counts=until_counts)
    return train_tokenizer(training(source, output, **changes), options=options, executor=executor or inline())
