"""Running jobs from tests: in this process, or by the command line, and looking at what they leave."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.forked_commands import TOKJOB, Forked, can_fork, run_forked
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.output.index import dump_index

PATIENCE_S = 600.0
"""For the end of a run, which takes seconds: beside four busy processes one on three nodes of Ray took over 120 s."""

JAXFORMER: dict[str, Any] = {
    "tokenizer": {"name": "gpt-4"},
    "output": {
        "dtype": "UInt32",
        "path": "{split}/{split}_{index:04d}",
        "splits": [{"name": "test", "shards": 3}, {"name": "train"}],
    },
}
NANOGPT: dict[str, Any] = {
    "tokenizer": {"name": "gpt2"},
    "output": {
        "dtype": "UInt16",
        "path": "edufineweb_{split}_{shard:06d}",
        "splits": [{"name": "val", "shards": 1}, {"name": "train"}],
    },
}


def make_job(source: Path | str, output: Path | str, /, *layers: dict[str, Any], **fields: Any) -> TokenizationJob:
    """A job from `source` to `output`; `layers` and `fields` are blocks of spec, later ones on top."""
    spec: dict[str, Any] = {
        "source": {"uris": [str(source)]},
        "tokenizer": {"name": "gpt2"},
        "output": {"uri": str(output)},
    }
    for layer in (*layers, fields):
        for name, value in layer.items():
            if isinstance(value, dict):
                spec.setdefault(name, {}).update(value)
            else:
                spec[name] = value
    return TokenizationJob.from_object(
        {
            "apiVersion": "tokenization.dev/v1alpha1",
            "kind": "TokenizationJob",
            "metadata": {"name": "test"},
            "spec": spec,
        }
    )


def command(job: TokenizationJob, folder: Path, *options: str) -> list[str]:
    """The command line that runs `job`, whose manifest is written into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / "job.yaml"
    manifest.write_text(job.to_yaml(), encoding="utf-8")
    return [str(TOKJOB), "run", str(manifest), *options]


def run_command(
    arguments: Sequence[str], *, timeout_s: float = PATIENCE_S, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; its output is captured."""
    done = run_forked(arguments, env={**os.environ, **environment}, timeout=timeout_s)
    return subprocess.CompletedProcess(arguments, done.returncode, done.stdout.decode(), done.stderr.decode())


_RUNNING: set[Running] = set()


def kill_all() -> None:
    """Kill whatever is still running; a test that failed may have left something asleep."""
    for running in list(_RUNNING):
        running.kill()


class Running:
    """A command in a process group of its own; standard output and errors go to `log`.out and `log`.err.

    All processes of the group hold the writing end of a pipe, so that its end says that every one is gone.
    """

    def __init__(self, arguments: Sequence[str], log: Path, *, stdout: int | None = None, **environment: str) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._alive, held = os.pipe()
        env = {**os.environ, **environment}
        begin = Forked if can_fork(arguments, env) else subprocess.Popen
        with (
            Path(os.devnull).open("rb") as nothing,
            log.with_suffix(".out").open("wb") as out,
            log.with_suffix(".err").open("wb") as err,
        ):
            self.process = begin(
                arguments,
                stdin=nothing.fileno(),
                stdout=out.fileno() if stdout is None else stdout,
                stderr=err.fileno(),
                start_new_session=True,
                pass_fds=(held,),
                env=env,
            )
        os.close(held)
        _RUNNING.add(self)

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def errors(self) -> str:
        return self.log.with_suffix(".err").read_text(encoding="utf-8")

    def signal(self, number: int) -> None:
        """Send a signal to the whole group; one that is gone already is fine."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self) -> int:
        """SIGKILL the group, wait until every process of it is gone, and return the first one's exit code."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait until every process of the group is gone; the exit code of the first one."""
        code = self.process.wait(timeout_s)
        if self not in _RUNNING:
            return code
        ready, _, _ = select.select([self._alive], [], [], timeout_s)
        if not ready:
            raise TimeoutError(f"a worker of {self.process.args!r} outlived it")
        _RUNNING.discard(self)
        os.close(self._alive)
        return code

    def events(self) -> list[dict[str, Any]]:
        """What a `--json` run has told so far."""
        return read_events(self.log)


class EventPipe:
    """Standard output for a `tokjob run --json` that stands still while nobody reads its events.

    A pipe of one page, which a few events fill: then the driver waits in `write`, and a test can look at it, signal
    it or change the world without any hurry. `writer` is to be closed when the run has it.
    """

    def __init__(self) -> None:
        reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, 4096)
        self._reader = os.fdopen(reader, "rb")
        self.events: list[dict[str, Any]] = []

    def read_until(self, holds: Callable[[dict[str, Any]], bool]) -> bool:
        """Read events up to the first one for which `holds` is true; False where the run ended before."""
        for line in self._reader:
            self.events.append(json.loads(line))
            if holds(self.events[-1]):
                return True
        return False

    def read_to_end(self) -> None:
        """Read on until the run has ended."""
        with self._reader:
            self.events += [json.loads(line) for line in self._reader if line.endswith(b"\n")]

    @property
    def is_closed(self) -> bool:
        return self._reader.closed

    def close(self) -> None:
        """Nobody reads them any more."""
        self._reader.close()


def has_ranges(count: int) -> Callable[[dict[str, Any]], bool]:
    """Whether an event tells of so many ranges that are done."""
    return lambda event: event["event"] == "progress" and event["ranges_done"] >= count


class Held(Running):
    """A `Running` that stands still, soon after `wait_for_ranges` and at the latest there, until it is waited for."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self._pipe = EventPipe()
        self._is_released = False
        self._reading: threading.Thread
        super().__init__(arguments, log, stdout=self._pipe.writer)
        os.close(self._pipe.writer)

    def wait_for_ranges(self, count: int) -> None:
        """Read its events until so many ranges are done."""
        assert self._pipe.read_until(has_ranges(count)), f"the run ended before: {self.errors}"

    def wait_for_event(self) -> None:
        """Read its next event: so it goes on by little more than one."""
        assert self._pipe.read_until(lambda event: True), f"the run ended before: {self.errors}"

    def events(self) -> list[dict[str, Any]]:
        return self._pipe.events

    def release(self) -> None:
        """Let it go on."""
        if not self._is_released:
            self._is_released = True
            self._reading = threading.Thread(target=self._pipe.read_to_end, daemon=True)
            self._reading.start()

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        self.release()
        code = super().wait(timeout_s)
        self._reading.join(timeout_s)
        return code


def read_events(log: Path) -> list[dict[str, Any]]:
    """The events of a `--json` run so far; a line that a kill has cut is left out."""
    lines = log.with_suffix(".out").read_bytes().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def files_below(folder: Path) -> set[str]:
    """Paths of all files, relative to `folder`, which a run may be changing meanwhile."""
    return {Path(parent, name).relative_to(folder).as_posix() for parent, _, names in os.walk(folder) for name in names}


def shard_files(output: Path) -> set[str]:
    """Paths of all shard files of a dataset (or of an oracle's folder)."""
    return {path for path in files_below(output) if path.endswith((".npy", ".bin", ".idx", ".tar"))}


def difference(output: Path, expected: Path) -> str | None:
    """The first way in which the shard files differ, in words; None where every byte is equal."""
    mine, theirs = shard_files(output), shard_files(expected)
    if mine != theirs:
        return f"only in one of {output} and {expected}: {sorted(mine ^ theirs)[:10]}"
    for path in sorted(mine):
        a, b = (output / path).read_bytes(), (expected / path).read_bytes()
        if a != b:
            at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            return f"{path} of {output}: {len(a)} bytes, expected {len(b)}; first difference at byte {at}"
    return None


def read_index(output: Path) -> dict[str, Any]:
    index: dict[str, Any] = json.loads((output / "index.json").read_bytes())
    return index


def move_dataset(output: Path, target: Path) -> Path:
    """Copy what docs/layout.md calls the dataset: no plan, no epochs, no ledger."""
    own = [f"_tokenization/{name}" for name in ("documents/*/*", "files.jsonl.zst", "quarantine.jsonl.zst")]
    for pattern in ("train/*.npy", "index.json", "shards.jsonl.zst", *own):
        for path in output.glob(pattern):
            copy = target / path.relative_to(output)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    return target


def write_index(output: Path, index: dict[str, Any]) -> None:
    """Replace the index by another one with its own checksum: a person's work, not a disk's."""
    (output / "index.json").write_bytes(dump_index(index))


_EXPECTED = re.compile(
    r"index\.json|shards\.jsonl\.zst|[^_].*\.(npy|bin|idx)"
    r"|_tokenization/(plan|samples|quarantine\.jsonl\.zst|files\.jsonl\.zst|epochs/\d{4}\.json|files/\d{8}\.json"
    r"|poison/\d{8}-\d{16}\.json|documents/\w+/\d{8}|ledger/\d+/(ranges/\d{8}\.json|scatters/\d{4}/\d{8}\.json|shards/\w+/\d{8}\.json|quarantine/\d{8}-[0-9a-f]{16}\.jsonl\.zst))"
)


def unexpected(paths: Iterable[str]) -> list[str]:
    """Those of the paths below an output that a finished one does not have."""
    return sorted(path for path in paths if not _EXPECTED.fullmatch(path))


def leftovers(output: Path) -> list[str]:
    """Everything in a finished output that has no business there: scratch, temporary files, unknown names."""
    found = unexpected(files_below(output))
    if (output / "_tokenization" / "tmp").exists():
        found.append("_tokenization/tmp/")
    return sorted(found)
