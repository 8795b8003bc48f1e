"""What the command line says to a mistake: where it is, what was expected, and what to type instead."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenization_worker.cli.main import main

JOB = "--source data --tokenizer bytes --output out"

Answer = Callable[..., str]


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Answer:
    """Runs a command in a folder with `data/a.jsonl`; returns what standard error says, and checks the exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text('{"text": "some words of a document"}\n' * 10)

    def ask(typed: str, code: int = 2) -> str:
        try:
            found = main(shlex.split(typed))
        except SystemExit as left:
            found = int(left.code or 0)
        told = capsys.readouterr().err
        assert found == code, told
        assert "Traceback" not in told
        return told

    return ask


@pytest.mark.parametrize(
    "flag",
    [
        "--rangeBytes",
        "--maxQuarantined",
        "--output.shards.tokens",
        "--documents.maxBytes",
        "--output.splits",
        "--tokenizer.specialTokens",
    ],
)
def test_a_number_of_thousands_of_digits_is_a_short_message(flag: str, answer: Answer) -> None:
    told = answer(f"run {JOB} {flag} {'9' * 5_000}")
    assert f"SpecInvalid: {flag} 9999" in told
    assert "a number of 5,000 characters, expected at most 9,223,372,036,854,775,807" in told
    assert len(told) < 1000


@pytest.mark.parametrize(("flag", "words"), [("--processes", "expected a whole number"), ("--ray-address h", "HOST:")])
def test_a_count_and_a_port_of_thousands_of_digits_are_refused(flag: str, words: str, answer: Answer) -> None:
    separator = ":" if "ray" in flag else " "
    assert words in answer(f"run {JOB} --executor ray {flag}{separator}{'9' * 5_000}")


@pytest.mark.parametrize("command", ["status z", f"run {JOB}", "plan job.yaml", "verify z", "show z", "clean z"])
def test_a_current_folder_that_is_gone_is_named(command: str, answer: Answer, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    told = answer(command)
    assert "SpecInvalid: the current folder does not exist any more" in told
    assert "next: cd to one that does" in told
