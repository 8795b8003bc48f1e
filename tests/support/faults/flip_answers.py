"""What a reader of a dataset may ask `open_dataset` for: questions whose answers are compared with the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from support.faults.flip_states import FINISHED, World
from tokenization_worker.dataset.dataset import Dataset, open_dataset

_LOCATED = 25
"""Tokens of each split that are located."""


def known(index: dict[str, Any], truth: dict[str, Any]) -> dict[str, Any]:
    """What the index says of that what the right one tells of; its own checksum is no answer."""
    run = {key: index["run"].get(key) for key in truth["run"] if key != "checksum"} if "run" in index else None
    return {key: index.get(key) for key in truth} | {"run": run}


ANSWERS: dict[str, Callable[[World, Dataset], Any]] = {}


def _answer(question: Callable[[World, Dataset], Any]) -> Callable[[World, Dataset], Any]:
    ANSWERS[question.__name__] = question
    return question


@_answer
def metadata(world: World, dataset: Dataset) -> Any:
    paths = {name: [shard.path for shard in split.shards] for name, split in dataset.items()}
    sizes = {name: (len(split), split.documents) for name, split in dataset.items()}
    about = (dataset.tokenizer, dataset.vocab_size, dataset.delimiter_id, str(dataset.dtype))
    return paths, sizes, about, known(dataset.index, world.index)


@_answer
def tokens(world: World, dataset: Dataset) -> Any:
    return {name: split.tokens(0, len(split)).tobytes() for name, split in dataset.items()}


@_answer
def shards(world: World, dataset: Dataset) -> Any:
    arrays = {shard.path: shard.open() for split in dataset.values() for shard in split.shards}
    return {path: (array.dtype.str, array.shape, np.asarray(array).tobytes()) for path, array in arrays.items()}


@_answer
def locate(world: World, dataset: Dataset) -> Any:
    return [
        dataset.locate(name, token)
        for name, split in dataset.items()
        for token in range(0, len(split), max(1, len(split) // _LOCATED))
    ]


@_answer
def source_file(world: World, dataset: Dataset) -> Any:
    return [dataset.source_file(str(path)) for path in sorted(world.source.iterdir())]


def ask(world: World) -> dict[str, Any]:
    """The answers of the undamaged dataset."""
    world.put_back(FINISHED)
    return {name: question(world, open_dataset(world.output)) for name, question in ANSWERS.items()}
