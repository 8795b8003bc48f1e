"""`tokjob verify`: what its words promise, its options and its advice."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Bench, sample_texts
from corpus import json_lines

from tokenization_worker.verification.verify import verify


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.chdir(tmp_path)
    return Bench(tmp_path)


@pytest.mark.parametrize(("count", "least", "most"), [(1, 1, 1), (50, 50, 50), (127, 127, 127), (400, 40, 100)])
def test_sample_of_a_small_dataset_proves_something(count: int, least: int, most: int, bench: Bench) -> None:
    for name in "bc":
        (bench.source / f"{name}.jsonl").unlink()
    (bench.source / "a.jsonl").write_bytes(json_lines(sample_texts("a", count)))
    bench.run()
    report = verify(str(bench.output), processes=1)
    assert report.is_clean
    assert report.documents == count
    assert least <= report.documents_compared <= most
