"""A command that begins as a fork finds what it would find in a new interpreter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.forked_commands import Forked, can_fork, run_forked
from support.runs import TOKJOB, Running

LOOK = """
import json, multiprocessing, os, signal, sys, threading
streams = [sys.stdin, sys.stdout, sys.stderr]
found = {
    "name": __name__, "file": __file__, "main": sys.modules["__main__"].__file__, "argv": sys.argv, "path": sys.path,
    "folder": os.getcwd(), "environment": dict(os.environ), "executable": sys.executable,
    "streams": [
        (s.fileno(), s.encoding, s.errors, s.isatty(), s.line_buffering, s.write_through, s.readable()) for s in streams
    ],
    "signals": {str(number): str(signal.getsignal(number)) for number in sorted(signal.valid_signals())},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "umask": os.umask(0o22),
    "own session": os.getsid(0) == os.getpid(), "threads": threading.active_count(),
    "process": multiprocessing.current_process().name, "parent": str(multiprocessing.parent_process()),
    "files": len(os.listdir("/proc/self/fd")), "priority": os.nice(0),
}
json.dump(found, sys.stdout)
"""


@pytest.fixture
def look(tmp_path: Path) -> Path:
    (tmp_path / "look.py").write_text(LOOK, encoding="utf-8")
    return tmp_path / "look.py"


def test_a_fork_finds_what_a_new_interpreter_finds(look: Path) -> None:
    arguments = [sys.executable, str(look), "--größe", "1"]
    path = os.pathsep.join(filter(None, ["/added", os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "NEW": "größe", "PYTHONPATH": path}
    environment.pop("HOME", None)
    assert can_fork(arguments, environment)
    forked = run_forked(arguments, cwd=look.parent, env=environment)
    new = subprocess.run(
        arguments, cwd=look.parent, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    assert (forked.returncode, forked.stderr) == (0, b"")
    found, wanted = json.loads(forked.stdout), json.loads(new.stdout)
    assert found == wanted
    assert found["environment"]["NEW"] == "größe"


@pytest.mark.parametrize(
    ("body", "code", "told"),
    [
        ("pass", 0, ""),
        ("raise SystemExit(7)", 7, ""),
        ("raise SystemExit('said')", 1, "said"),
        ("raise ValueError('said')", 1, "ValueError: said"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("import os; os._exit(5)", 5, ""),
        ("import atexit, sys; atexit.register(print, 'said', file=sys.stderr)", 0, "said"),
        ("import os, sys; sys.stdout = open(1, 'w', closefd=False); print(1); os.close(1)", 120, "OSError"),
    ],
)
def test_it_ends_as_a_new_interpreter_does(body: str, code: int, told: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(body, encoding="utf-8")
    ended = run_forked([sys.executable, str(script)])
    assert ended.returncode == code
    assert told in ended.stderr.decode()


def test_what_starts_by_other_rules_is_no_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/here")
    assert can_fork([str(TOKJOB), "run"], os.environ)
    assert not can_fork([str(TOKJOB), "run"], {**os.environ, "PYTHONIOENCODING": "ascii"})
    assert not can_fork([str(TOKJOB), "run"], {**os.environ, "PYTHONPATH": "/elsewhere"})
    assert not can_fork([sys.executable, "-c", "pass"], os.environ)
    assert not can_fork(["sh", "-c", str(TOKJOB)], os.environ)


def test_its_whole_group_can_be_waited_for(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os, time; os.fork(); time.sleep(600)", encoding="utf-8")
    running = Running([sys.executable, str(script)], tmp_path / "log")
    assert isinstance(running.process, Forked)
    assert not running.has_ended
    with pytest.raises(subprocess.TimeoutExpired):
        running.process.wait(0.01)
    assert running.kill() == -signal.SIGKILL
