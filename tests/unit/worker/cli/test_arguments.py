"""The Python API refuses what the command line refuses, with the same class of error."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenization_worker import Options, TokenizationJob, make_plan, open_dataset, run_job, verify
from tokenization_worker.errors import SpecError

JOB = TokenizationJob.of(source="nowhere", tokenizer="bytes", output="out")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Options(processes=2000), "processes: found 2,000, expected at most 1,024"),
        (lambda: Options(processes=0), "processes: found 0, expected a whole number, at least 1"),
        (lambda: Options(processes=-3), "processes: found -3"),
        (lambda: Options(sample_one_in=0), "sample_one_in: found 0"),
        (lambda: Options(engine="fast"), "engine: found 'fast'\n  next: give one of auto, reference, fastokens"),  # type: ignore[arg-type]
        (lambda: verify("nowhere", mode="all"), "mode: found 'all'\n  next: give one of checksums, sample, full"),
        (lambda: verify("nowhere", processes=0), "processes: found 0"),
        (lambda: verify("nowhere", sample_one_in=0), "sample_one_in: found 0"),
        (lambda: make_plan(None, processes=0), "processes: found 0"),  # type: ignore[arg-type]
        (
            lambda: run_job("job.yaml"),  # type: ignore[arg-type]
            "run_job takes a TokenizationJob, found str\n  next: make a job with TokenizationJob.from_yaml(...)",
        ),
        (lambda: run_job({}), "run_job takes a TokenizationJob, found dict\n  next: make a job with Tokeni"),  # type: ignore[arg-type]
        (lambda: run_job(None), "run_job takes a TokenizationJob, found NoneType"),  # type: ignore[arg-type]
        (lambda: make_plan("x"), "make_plan takes a TokenizationJob, found str"),  # type: ignore[arg-type]
        (
            lambda: run_job(JOB, options={"processes": 2}),  # type: ignore[arg-type]
            "options: found dict, expected Options\n  next: give Options(...) of tokenization_worker",
        ),
        (lambda: run_job(JOB, should_stop=True), "should_stop: found True, expected a function, should_stop() -> bool"),  # type: ignore[arg-type]
        (lambda: run_job(JOB, on_progress=5), "on_progress: found 5, expected a function, on_progress(event)"),  # type: ignore[arg-type]
        (lambda: make_plan(JOB, on_progress=5), "on_progress: found 5"),  # type: ignore[arg-type]
        (lambda: verify("nowhere", on_progress=5), "on_progress: found 5"),  # type: ignore[arg-type]
        (
            lambda: verify(JOB),
            "verify takes the place of a dataset, found TokenizationJob\n  next: give",
        ),  # type: ignore[arg-type]
        (lambda: open_dataset(None), "open_dataset takes the place of a dataset, a path or URI, found None"),  # type: ignore[arg-type]
        (lambda: open_dataset(""), "open_dataset takes the place of a dataset, a path or URI, found ''"),
        (
            lambda: TokenizationJob.from_object("job.yaml"),  # type: ignore[arg-type]
            "from_object takes the dictionary of a manifest, found str\n  next: for a path or a text, use Tok",
        ),
        (
            lambda: TokenizationJob.of("a", "b", "c"),  # type: ignore[arg-type]
            "TokenizationJob.of takes keyword arguments only, found 3 values without a keyword",
        ),
        (lambda: run_job(JOB, 2), "run_job takes a job, and the rest by keyword; found 2 without one"),  # type: ignore[arg-type]
        (lambda: TokenizationJob.from_yaml(""), "the manifest is empty"),
    ],
    ids=lambda value: value.split("\n")[0] if isinstance(value, str) else "",
)
def test_wrong_argument_is_a_spec_error(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(SpecError) as error:
        call()
    assert words in str(error.value)
    assert error.value.reason == "SpecInvalid"


def test_options_are_right_by_default() -> None:
    assert Options() == Options(processes=None, engine="auto")


@pytest.mark.parametrize(
    "call",
    [
        lambda: run_job(JOB),
        lambda: make_plan(JOB),
        lambda: open_dataset("x"),
        lambda: verify("x"),
        lambda: TokenizationJob.from_yaml("job.yaml"),
    ],
    ids=["run_job", "make_plan", "open_dataset", "verify", "from_yaml"],
)
def test_a_current_folder_that_is_gone_is_a_spec_error(
    call: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(SpecError, match="SpecInvalid: the current folder does not exist any more"):
        call()
    os.chdir(tmp_path)
