"""Processes of the test bed: started with a log each, written down, and stopped by what was written down.

A process is known by its id and its start time: an id alone may be another process by now.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed.patience import Patience

TERM_S = 10.0
KILL_S = 60.0
"""A killed process always ends, and what starts at its port afterwards needs it gone."""


class NotReady(Exception):
    """Something did not come up; the message holds the end of its log."""


@dataclass(frozen=True)
class _Command:
    """`environment`: beside that of the process which starts it."""

    words: list[str]
    environment: dict[str, str]


class Processes:
    """All processes of one test bed; `folder` holds their logs and the list of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._list = folder / "processes.json"
        self._commands_file = folder / "commands.json"
        self._mine: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def are_there(self) -> bool:
        """Whether any were started and not stopped."""
        return self._list.exists()

    def log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def start(self, name: str, *command: object, environment: Mapping[str, str] | None = None) -> int:
        """Start a process that outlives this one; returns its id."""
        return self._start(name, _Command([str(word) for word in command], dict(environment or {})))

    def start_again(self, name: str) -> int:
        """What was stopped, as it was started, by whichever process of ours."""
        return self._start(name, self._commands()[name])

    def _start(self, name: str, command: _Command) -> int:
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                command.words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **command.environment},
            )
        self._mine[name] = process
        with self._locked():
            self._write({**self._listed(), name: (process.pid, _start_ticks(process.pid))})
            commands = {**self._commands(), name: command}
            text = json.dumps({name: asdict(each) for name, each in commands.items()})
            self._commands_file.write_text(text, encoding="utf-8")
        return process.pid

    def stop(self, name: str, *, sign: signal.Signals = signal.SIGTERM) -> None:
        """Stop one, and wait until it is gone."""
        with self._locked():
            pid, ticks = self._listed()[name]
        for number, patience_s in ((sign, TERM_S), (signal.SIGKILL, KILL_S)):
            if not self._is_alive(name, pid, ticks):
                break
            os.kill(pid, number)
            self._await_end(name, pid, ticks, patience_s)
        self._mine.pop(name, None)
        with self._locked():
            self._write({each: found for each, found in self._listed().items() if each != name})

    def stop_own(self) -> None:
        """Stop what this object has started."""
        for name in reversed(list(self._mine)):
            self.stop(name)

    def stop_all(self) -> None:
        """Stop all, the last one first; also those of an earlier process of ours."""
        for name in reversed(list(self._listed())):
            self.stop(name)
        self._list.unlink(missing_ok=True)

    def wait_until(self, what: str, holds: Callable[[], bool], *, needs: tuple[str, ...], patience_s: float) -> None:
        """Wait for something that the processes `needs` are to bring about; raises `NotReady`."""
        patience = Patience(patience_s)
        while not holds():
            for name in needs:
                if name in self._mine and self._mine[name].poll() is not None:
                    raise NotReady(f"{name} ended with code {self._mine[name].returncode}:\n{self._tail(name)}")
            if patience.is_over():
                logs = "\n".join(f"--- {name}\n{self._tail(name)}" for name in needs)
                raise NotReady(f"waited {patience_s:g} s for: {what}\n{logs}")
            time.sleep(0.02)

    def _tail(self, name: str) -> str:
        return self.log(name).read_text(encoding="utf-8", errors="replace")[-3000:]

    def _await_end(self, name: str, pid: int, ticks: int | None, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while self._is_alive(name, pid, ticks) and time.monotonic() < deadline:
            time.sleep(0.01)

    def _is_alive(self, name: str, pid: int, ticks: int | None) -> bool:
        if name in self._mine:
            return self._mine[name].poll() is None
        return ticks is not None and _start_ticks(pid) == ticks

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Several processes of tests may write the list."""
        with (self._folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _commands(self) -> dict[str, _Command]:
        if not self._commands_file.exists():
            return {}
        found = json.loads(self._commands_file.read_text(encoding="utf-8"))
        return {name: _Command(**each) for name, each in found.items()}

    def _listed(self) -> dict[str, tuple[int, int | None]]:
        if not self._list.exists():
            return {}
        return {name: (pid, ticks) for name, (pid, ticks) in json.loads(self._list.read_text("utf-8")).items()}

    def _write(self, listed: dict[str, tuple[int, int | None]]) -> None:
        self._list.write_text(json.dumps(listed), encoding="utf-8")


def _start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since the machine did; None for one that is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])
