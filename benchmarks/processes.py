"""Runs a command from start to end and says what it cost. Output goes to a log that is shown if it fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

LOG_TAIL_LINES = 25
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024

Command = Sequence[str | Path]


class Cost(NamedTuple):
    """`seconds` on the clock. The rest covers the process and all descendants that it waited for: `cpu_seconds` is
    their sum, `peak_rss_bytes` the largest of them."""

    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int


class CommandFailed(Exception):
    """The command and the end of what it said."""


def run_command(
    command: Command,
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    watch: Callable[[int], None] | None = None,
) -> Cost:
    """Run `command` to its end, in a session of its own; `watch` gets its pid, which is the session's number.

    Raises `CommandFailed` unless it exits with 0.
    """
    words = [str(word) for word in command]
    with log.open("wb") as output:
        started = time.perf_counter()
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        try:
            if watch is not None:
                watch(process.pid)
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        said = log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        raise CommandFailed(f"exit code {process.returncode}: {' '.join(words)[:500]}\n" + "\n".join(said))
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * _MAXRSS_UNIT)
