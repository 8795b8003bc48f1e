"""Where an estimate looks, and what it says of time."""

from __future__ import annotations

import itertools

import pytest

from tokenization_worker.planning.estimate import Estimate
from tokenization_worker.planning.sampled_files import SAMPLED_FILES, choose_samples
from tokenization_worker.storage.source_file import SourceFile


def estimate_of(reference: str, seconds: float | None) -> Estimate:
    return Estimate(None, 0, None, None, reference, seconds, None, 0)


@pytest.mark.parametrize(
    ("reference", "engine", "seconds"),
    [
        ("tiktoken", "tiktoken", 80.0),
        ("tiktoken", "reference", 80.0),
        ("tiktoken", "fastokens", 10.0),
        ("tokenizers", "fastokens", 2.0),
        ("sentencepiece", "fastokens", 10.0),
    ],
)
def test_an_accelerated_engine_shortens_the_run_by_what_its_reference_is_known_to_lose(
    reference: str, engine: str, seconds: float
) -> None:
    assert estimate_of(reference, 80.0).core_seconds(engine) == seconds
    assert estimate_of(reference, None).core_seconds(engine) is None


@pytest.mark.parametrize("count", [0, 1, SAMPLED_FILES - 1, SAMPLED_FILES, SAMPLED_FILES + 1, 1000])
def test_samples_are_spread_over_the_source(count: int) -> None:
    files = [SourceFile(f"/{number}", 1, "v") for number in range(count)]
    chosen = choose_samples(files)
    assert len(chosen) == min(count, SAMPLED_FILES)
    numbers = [files.index(file) for file in chosen]
    steps = {after - before for before, after in itertools.pairwise([-1, *numbers, count])}
    assert max(steps, default=1) <= max(1, -(-count // SAMPLED_FILES))


def test_a_large_file_stands_for_as_many_samples_as_it_has_bytes_of_them() -> None:
    files = [SourceFile(f"/{number}", 1000 if number == 40 else 1, "v") for number in range(100)]
    assert [file.uri for file in choose_samples(files)] == ["/34", "/40", "/65"]
    assert len(choose_samples([SourceFile(f"/{number}", 0, "v") for number in range(100)])) == SAMPLED_FILES
