"""What this package and libraries log reaches a terminal escaped and without secrets."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokenization_worker.cli.logged import EscapedWarnings

OSC = "\x1b]0;owned\x07"
SHOWN = r"\x1b]0;owned\x07"

WAIT = """\
import sys
from tokenization_worker.cli.main import main
from tokenization_worker.storage import retry

retry.TELL_AFTER_S = 0.0
sys.exit(main(["plan", "--source", sys.argv[1], "--tokenizer", "bytes", "--output", "out"]))
"""

SPAWN = """\
import logging
from tokenization_worker.cli import logged
from tokenization_worker.host.main_guard import WorkerContext


def warn(words):
    logging.getLogger("tokenization_worker.storage.retry").warning("cannot read %s yet", words)


if __name__ == "__main__":
    if {is_command}:
        logged.escape_warnings()
    worker = WorkerContext().Process(target=warn, args=({words!r},))
    worker.start()
    worker.join()
"""


def print_record(capsys: pytest.CaptureFixture[str], name: str, message: str, **more: object) -> str:
    fields = {"name": name, "levelno": logging.WARNING, "levelname": "WARNING", "msg": message, **more}
    EscapedWarnings().handle(logging.makeLogRecord(fields))
    told = capsys.readouterr()
    assert told.out == ""
    return told.err


def test_a_warning_is_one_line_of_its_words_alone(capsys: pytest.CaptureFixture[str]) -> None:
    message = f"cannot read gs://b/a{OSC}\ntokjob: done yet: http://user:hunter2@host away"
    told = print_record(capsys, "tokenization_worker.storage.retry", message)
    assert told == f"cannot read gs://b/a{SHOWN}\\x0atokjob: done yet: http://***@host away\n"


def test_lines_of_a_library_and_of_a_traceback_stay(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_record(capsys, "urllib3.pool", f"one\n\ttwo{OSC}") == f"one\n\ttwo{SHOWN}\n"
    try:
        raise ValueError(OSC)
    except ValueError:
        told = print_record(capsys, "tokenization_worker.output.last_failure", "failed", exc_info=sys.exc_info())
    assert told.startswith("failed\nTraceback (most recent call last):\n")
    assert told.endswith(f"ValueError: {SHOWN}\n")


def test_a_store_that_is_waited_for_is_named_without_its_escapes(tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text(WAIT)
    environment = {**os.environ, "STORAGE_EMULATOR_HOST": "http://127.0.0.1:1"}
    with subprocess.Popen(
        [sys.executable, "wait.py", f"gs://bucket/n{OSC}.jsonl"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as plan:
        assert plan.stderr is not None
        said = plan.stderr.readline()
        plan.kill()
    assert said.startswith(f"cannot read gs://bucket/n{SHOWN}.jsonl yet: no connection to 127.0.0.1:1: ")


@pytest.mark.parametrize("is_command", [True, False], ids=["command", "library"])
def test_a_spawned_worker_escapes_what_its_command_escapes(is_command: bool, tmp_path: Path) -> None:
    """A program that uses the package as a library decides itself what becomes of its log."""
    (tmp_path / "spawn.py").write_text(SPAWN.format(is_command=is_command, words=f"n{OSC}"))
    told = subprocess.run([sys.executable, "spawn.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert told.stderr == f"cannot read n{SHOWN if is_command else OSC} yet\n"
