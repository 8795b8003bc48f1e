"""Commands of this package that begin as forks of a process that has imported it: a start costs 0.1 s, not 0.8 s.

The process that is forked runs no thread of Python; all that it has done is to import, and to parse two rank files.
It skips syncs, as this process does.
What a command begins with is otherwise what the kernel would give it: its arguments, environment, folder, open files,
session, and signals by default; a `sitecustomize` that its PYTHONPATH adds has its say. Starts of a new interpreter
that matter (interrupted imports, a terminal, outputs that are closed, limits) are not made here, nor may others be
where `can_fork` says no.
"""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module, reload
from importlib.machinery import PathFinder
from io import TextIOWrapper
from multiprocessing.connection import wait as wait_for  # `select` knows no descriptor above 1,023
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, NoReturn

from support.places import TESTS
from support.ranks_once import parse_ranks_once
from support.syncs import skip_syncs
from tokenization_worker.errors import TokenizationError
from tokenization_worker.tokenizers.ranks.encodings import read_named

TOKJOB = Path(sys.executable).parent / "tokjob"
OPERATOR = Path(sys.executable).parent / "tokenization-operator"

_OF_TOKJOB = (
    "numpy",
    "pyarrow.parquet",
    "tiktoken_ext.openai_public",
    "fastokens",
    "tokenization_worker.checkpoint.client",
    "tokenization_worker.cli.dispatch",
    "tokenization_worker.cli.progress",
    "tokenization_worker.cli.run_command",
    "tokenization_worker.cli.plan_command",
    "tokenization_worker.cli.show_command",
    "tokenization_worker.cli.status_command",
    "tokenization_worker.cli.train_command",
    "tokenization_worker.cli.validate_command",
    "tokenization_worker.cli.verify_command",
    "tokenization_worker.engine.local",
    "tokenization_worker.readers.parquet.reader",
    "tokenization_worker.run.run",
    "tokenization_worker.run.training.train",
    "tokenization_worker.storage.local.source",
    "tokenization_worker.tokenizers.fast_engine",
    "tokenization_worker.tokenizers.tiktoken_engine",
    "tokenization_worker.verification.verify",
    "tokenization_worker.verification.workers",
)
_OF_OPERATOR = ("tokenization_operator.command", "kubernetes.config", "kopf")
IMPORTED = {str(TOKJOB): _OF_TOKJOB, str(OPERATOR): _OF_OPERATOR}
"""What most commands of a script import themselves. Nothing that reads its environment then, such as Ray, but for
`_READ_ENVIRONMENT`."""

_READ_ENVIRONMENT = (
    "kubernetes.config.kube_config",
    "kubernetes.config",
    "kubernetes.aio.config.kube_config",
    "kubernetes.aio.config",
)
"""Modules that read the environment when they are imported: imported again after a fork."""

ENCODINGS = ("gpt2", "cl100k_base")
"""What most jobs of tests name."""

_MOST_BYTES = 1 << 17
_MOST_FILES = 8


class _Start(NamedTuple):
    """What a command is started with; its files, the first three of them standard ones, come along."""

    script: str
    arguments: tuple[str, ...]
    folder: str
    environment: dict[str, str]
    has_own_session: bool


def can_fork(arguments: Sequence[str | Path], environment: Mapping[str, str]) -> bool:
    """Whether a command is a script of Python in an interpreter like this one."""
    added = _added_folders(environment)
    return _script(arguments) is not None and added is not None and _settings(environment) == _settings(os.environ)


def _script(arguments: Sequence[str | Path]) -> tuple[str, tuple[str, ...]] | None:
    words = [str(word) for word in arguments]
    if words[0] in IMPORTED:
        return words[0], tuple(words[1:])
    if words[0] == sys.executable and words[1].endswith(".py"):
        return words[1], tuple(words[2:])
    return None


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What an interpreter looks at when it starts, but for its path."""
    return {name: value for name, value in environment.items() if name.startswith("PYTHON") and name != "PYTHONPATH"}


def _added_folders(environment: Mapping[str, str]) -> list[str] | None:
    """What an environment has in PYTHONPATH before all that this process has there; None where it is another path."""
    mine, theirs = (where.get("PYTHONPATH", "").split(os.pathsep) for where in (os.environ, environment))
    mine, theirs = list(filter(None, mine)), list(filter(None, theirs))
    count = len(theirs) - len(mine)
    return theirs[:count] if count >= 0 and theirs[count:] == mine else None


class Forked:
    """A command that runs; as much of `subprocess.Popen` as tests use. `can_fork` must hold."""

    def __init__(
        self,
        arguments: Sequence[str | Path],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        pass_fds: Sequence[int] = (),
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        start_new_session: bool = False,
    ) -> None:
        self.args = arguments
        self.returncode: int | None = None
        self._telling = threading.Lock()
        script = _script(arguments)
        assert script is not None
        environment = dict(os.environ if env is None else env)
        start = _Start(*script, str(cwd or Path.cwd()), environment, start_new_session)
        self._end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            _server(start.script).send(start, [theirs.fileno(), stdin, stdout, stderr, *pass_fds])
        self.pid = int(self._end.recv(64))

    def __del__(self) -> None:
        self._end.close()  # not before: another thread may look at it

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, or minus a signal; raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            if not wait_for([self._end], timeout):
                raise subprocess.TimeoutExpired([str(word) for word in self.args], timeout or 0.0)
            with self._telling:
                if self.returncode is None:
                    self.returncode = int(self._end.recv(64))
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_forked(
    arguments: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end without an input; its output is captured. Forks where that is possible."""
    if not can_fork(arguments, os.environ if env is None else env):
        return subprocess.run(
            arguments, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False
        )
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, Path(os.devnull).open("rb") as nothing:
        command = Forked(arguments, stdin=nothing.fileno(), stdout=out.fileno(), stderr=err.fileno(), cwd=cwd, env=env)
        try:
            code = command.wait(timeout)
        except BaseException:
            command.kill()
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


class _Server:
    """The process that is forked; it ends with this one. A process that has forked itself gets a new one.

    `kind`: the script whose modules it has imported, one of `IMPORTED`.
    """

    def __init__(self, kind: str) -> None:
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here = str(TESTS)
        program = f"import sys; sys.path.insert(0, {here!r}); import support.forked_commands as it; del sys.path[0]"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"{program}; it.serve({theirs.fileno()}, {kind!r})"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        atexit.register(self._end)

    def send(self, start: _Start, files: Sequence[int]) -> None:
        with self._lock:
            socket.send_fds(self._requests, [pickle.dumps(start)], files)

    def _end(self) -> None:
        if self.owner == os.getpid():
            self._requests.shutdown(socket.SHUT_RDWR)  # whoever else has it open, as a fork of this process may
            self._process.wait()


_SERVERS: dict[str, _Server] = {}
_NEW_SERVER = threading.Lock()


def _server(script: str) -> _Server:
    kind = script if script in IMPORTED else str(TOKJOB)
    with _NEW_SERVER:
        if kind not in _SERVERS or _SERVERS[kind].owner != os.getpid():
            _SERVERS[kind] = _Server(kind)
        return _SERVERS[kind]


def serve(requests_fd: int, kind: str) -> None:
    """Fork for each request until the other end is closed; tell of each fork its process id and how it ended."""
    requests = socket.socket(fileno=requests_fd)
    skip_syncs()
    for name in IMPORTED[kind]:
        import_module(name)
    if kind == str(TOKJOB):
        _parse_ranks()
    gc.collect()
    gc.freeze()
    wakes, ended = socket.socketpair()
    ended.setblocking(False)
    wakes.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ended.fileno())
    running: dict[int, socket.socket] = {}
    while True:
        ready = wait_for([requests, wakes])
        if wakes in ready:
            with suppress(BlockingIOError):
                wakes.recv(4096)
            _tell_of_ended(running)
        if requests in ready:
            request, files, _, _ = socket.recv_fds(requests, _MOST_BYTES, _MOST_FILES)
            if not request:
                return
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                for end in (requests, wakes, ended, *running.values()):
                    end.close()
                _begin(pickle.loads(request), socket.socket(fileno=files[0]), files[1:])
            for file in files[1:]:
                os.close(file)
            running[pid] = socket.socket(fileno=files[0])


def _parse_ranks() -> None:
    parse_ranks_once()
    for encoding in ENCODINGS:
        with suppress(TokenizationError):  # of a machine without rank files: who needs them says so
            read_named(encoding)


def _tell_of_ended(running: dict[int, socket.socket]) -> None:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with running.pop(pid) as end, suppress(BrokenPipeError):
                end.send(str(os.waitstatus_to_exitcode(status)).encode())


def _begin(start: _Start, end: socket.socket, files: list[int]) -> NoReturn:
    """Become the command; tell of it as soon as signals find it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if start.has_own_session:
        os.setsid()
    with end, suppress(BrokenPipeError):
        end.send(str(os.getpid()).encode())
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
        os.close(file)
    for file in files[3:]:
        os.set_inheritable(file, True)
    added = _added_folders(start.environment) or []
    os.environ.clear()
    os.environ.update(start.environment)
    os.chdir(start.folder)
    tempfile.tempdir = None  # the parent may have looked for one
    for name in _READ_ENVIRONMENT:
        if name in sys.modules:
            reload(sys.modules[name])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        _open_stream(number, name)
    sys.argv = [start.script, *start.arguments]
    sys.path[:1] = [str(Path(start.script).parent), *added]
    if added and PathFinder.find_spec("sitecustomize", added):
        sys.modules.pop("sitecustomize", None)
        import_module("sitecustomize")
    main = ModuleType("__main__")
    main.__file__ = start.script
    sys.modules["__main__"] = main
    exec(compile(Path(start.script).read_bytes(), start.script, "exec"), main.__dict__)
    sys.exit(0)


def _open_stream(number: int, name: str) -> None:
    """A standard stream as the interpreter made it when this process began, of the file that is there now."""
    first = getattr(sys, f"__{name}__")
    is_unbuffered = first.write_through and number > 0
    file = open(number, "wb" if number else "rb", 0 if is_unbuffered else -1, closefd=False)  # noqa: SIM115
    stream = TextIOWrapper(
        file, first.encoding, first.errors, line_buffering=first.line_buffering, write_through=first.write_through
    )
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)
