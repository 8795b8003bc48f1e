"""Supervises an engine in its own process: a document may crash that process, but not the worker.

Documents are sent some at a time and encoded one at a time, each answered before the next is begun, so the process dies
of the first that has no answer. That one is encoded alone in a fresh process: only if that dies of it, too, the
document is to blame. A process that had encoded nothing else was such a one, unless it was killed by SIGKILL, which may
be the kernel's answer to another process's greed. So a document costs at most two processes, however many there are.

The process may take only what memory there is to spare, so that a document that wants more ends it, and not the
container with all workers in it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from tokenization_worker.api.data import DataSpec
from tokenization_worker.errors import TemporaryError, WorkerDied
from tokenization_worker.processes import STOPS, WORKER_BYTES, exit_words, free_memory
from tokenization_worker.tokenizers.base import Encoded, IdArray, KillsEngine, join_encoded
from tokenization_worker.tokenizers.isolation.engine_process import OUT_OF_MEMORY, Role, Start

_PLAIN_DOCUMENT_BYTES = 64 << 20
"""The default of `documents.maxBytes`; with a larger one the limit grows in proportion. Ordinary text of this size fits
into `WORKER_BYTES`; one piece of it takes 3.8 GB (docs/sizing.md), and is out of memory where less is free."""

_COMMAND = (
    "import sys; fd, *sys.path = sys.argv[1:]; "
    "from tokenization_worker.tokenizers.isolation.engine_process import main; main(int(fd))"
)


class Isolation:
    """The engines of a run in a process that is started when it is needed, and again when it has died.

    `limit_s`: as that of a tokenizer's `limited_reference`, in each process. Leave it as a context manager: the process
    ends with it.
    """

    def __init__(self, data: DataSpec, engine: str, limit_s: float | None = None) -> None:
        self._limit_s = limit_s
        self._data = data
        self._engine = engine
        self._process: _EngineProcess | None = None

    def engine(self, name: str, role: Role) -> IsolatedEngine:
        """The run's engine, or the reference; `name` as the engine itself has it."""
        return IsolatedEngine(self, name, role)

    def encode(self, role: Role, texts: Sequence[str]) -> list[IdArray]:
        """The ids of each text. Raises `KillsEngine`; `TemporaryError` where the process dies of something else."""
        done: list[IdArray] = []
        while len(done) < len(texts):
            process = self._started()
            try:
                process.encode(role, texts[len(done) :], done)
            except _Died as death:
                self._bury(death)
                if process.is_fresh and death.is_evidence:
                    raise KillsEngine(len(done), death.detail) from death
                self._encode_alone(role, texts, done)
        return done

    def _encode_alone(self, role: Role, texts: Sequence[str], done: list[IdArray]) -> None:
        """Encode the next text in a fresh process; raises `KillsEngine` if that dies as well."""
        suspect = len(done)
        try:
            self._started().encode(role, texts[suspect : suspect + 1], done)
        except _Died as death:
            self._bury(death)
            raise KillsEngine(suspect, death.detail) from death

    def _started(self) -> _EngineProcess:
        if self._process is None:
            try:
                start = Start(self._data.tokenizer, self._engine, memory_limit(self._data), self._limit_s)
                self._process = _EngineProcess(start)
            except _Died as death:
                raise _worker_died(f"an encoding process ended before it was ready: {death.detail}") from death
        return self._process

    def _bury(self, death: _Died) -> None:
        self._process = None
        if death.is_stop:
            raise _worker_died(f"an encoding process was stopped: {death.detail}") from death

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


class IsolatedEngine:
    """One of the engines of an `Isolation`."""

    def __init__(self, isolation: Isolation, name: str, role: Role) -> None:
        self.name = name
        self._isolation = isolation
        self._role = role

    def encode(self, texts: Sequence[str]) -> Encoded:
        """As the engine itself; also raises `KillsEngine`."""
        return join_encoded(self._isolation.encode(self._role, texts))


class _Died(Exception):
    """The process ended by itself: `code` as `subprocess` gives it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.detail = "out of memory" if code == OUT_OF_MEMORY else exit_words(code)
        self.is_stop = -code in STOPS
        self.is_evidence = code != -signal.SIGKILL


class _EngineProcess:
    """A process with both engines, ready to encode. Raises `_Died`."""

    def __init__(self, start: Start) -> None:
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND, str(theirs.fileno()), *sys.path],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # what a dying library says is for nobody
            )
        self.is_fresh = True
        self._call(lambda pipe: pipe.send(start))
        self._receive()

    def encode(self, role: Role, texts: Sequence[str], done: list[IdArray]) -> None:
        """Append the ids of each text to `done`, as far as it goes."""
        self._call(lambda pipe: pipe.send((role, list(texts))))
        for _ in texts:
            try:
                done.append(self._receive())
            except KillsEngine as kill:  # it lives, and no library can encode the text
                raise KillsEngine(len(done), kill.detail) from kill
            self.is_fresh = False

    def _receive(self) -> IdArray:
        answer = self._call(lambda pipe: pipe.recv())
        if isinstance(answer, BaseException):
            raise answer
        ids: IdArray = answer
        return ids

    def _call(self, use: Callable[[Connection], Any]) -> Any:
        try:
            return use(self._pipe)
        except (EOFError, OSError) as error:
            raise _Died(self._process.wait()) from error

    def end(self) -> None:
        self._pipe.close()
        self._process.kill()
        self._process.wait()


def memory_limit(data: DataSpec) -> int:
    """How much memory the engines may take for a document, in bytes: three quarters of what is free.

    Where little is free still what every worker is meant to have: a document must not be blamed for its neighbours.
    """
    least = WORKER_BYTES * max(1.0, data.max_document_bytes / _PLAIN_DOCUMENT_BYTES)
    return max(int(least), free_memory() * 3 // 4)


def _worker_died(what: str) -> TemporaryError:
    return WorkerDied(
        "WorkerDied",
        what,
        next_step="check the memory of the workers and the nodes, then start the same command again",
    )
