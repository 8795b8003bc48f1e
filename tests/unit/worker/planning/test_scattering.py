"""How large a shuffle may be, and how much memory its tasks need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.runs import make_job
from tokenization_worker.api.workers import WORKER_BYTES
from tokenization_worker.errors import SpecError
from tokenization_worker.output.plan_file import Scattering
from tokenization_worker.planning.prepare import Prepared, prepare
from tokenization_worker.planning.scattering import choose_scattering, held_bytes, needed_bytes

GIB = 1 << 30
DOCUMENT_TOKENS = 1_000
TERABYTE = 10**12 // 4
"""Of tokens of 4 bytes."""


def prepared(folder: Path, tokens: int) -> Prepared:
    """A shuffled job with an estimate of so many tokens."""
    source = folder / "source.jsonl"
    source.write_text('{"text": "some text"}\n', encoding="utf-8")
    output = {"dtype": "UInt32", "shuffle": {"seed": 0}}
    found = prepare(make_job(source, folder / "out", tokenizer={"name": "bytes"}, output=output))
    return replace(found, estimate=replace(found.estimate, tokens=tokens, documents=tokens // DOCUMENT_TOKENS))


def scatter(of: Prepared) -> Scattering:
    found = choose_scattering(of)
    assert found is not None
    return found


def test_a_small_shuffle_needs_no_more_memory_than_any_task(tmp_path: Path) -> None:
    small = prepared(tmp_path, TERABYTE // 20)
    assert held_bytes(small, scatter(small), TERABYTE // 20) < 230 << 20
    assert needed_bytes(small, scatter(small)) is None
    assert needed_bytes(small, None) is None


@pytest.mark.parametrize("terabytes", [1, 4])
def test_a_large_shuffle_needs_memory_for_a_window(terabytes: int, tmp_path: Path) -> None:
    large = prepared(tmp_path, terabytes * TERABYTE)
    scattering = scatter(large)
    held = held_bytes(large, scattering, terabytes * TERABYTE)
    assert 0.95 * GIB < held < 1.05 * GIB
    needed = needed_bytes(large, scattering)
    assert needed == (450 << 20) + held * 5 // 4 > WORKER_BYTES


def test_a_shuffle_above_the_limit_is_refused_with_numbers(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        choose_scattering(prepared(tmp_path, 5 * TERABYTE))
    assert caught.value.reason == "ShuffleTooLarge"
    assert caught.value.message == (
        "output.shuffle: the source has about 1,250,000,000,000 tokens (5.0 TB); one shuffle takes 4.4 TB"
    )
    assert caught.value.next_step == "split the source into several jobs, or leave out output.shuffle"
