"""A folder with a small job in it, the real command line on it, and what must come of it."""

from __future__ import annotations

import ctypes
import io
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.corpus import json_lines, zstd
from support.engine.inline import inline
from support.forked_commands import Forked, run_forked
from support.runs import TOKJOB, EventPipe, files_below, has_ranges
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.errors import DataError
from tokenization_worker.events import Finished, Watcher, ignore
from tokenization_worker.run.run import run_job

TIMEOUT_S = 120
SHARD_TOKENS = 12000
DELIMITER = 256

MANIFEST = """\
apiVersion: tokenization.dev/v1alpha1
kind: TokenizationJob
metadata: {name: bench}
spec:
  source: {uris: [src]}
  tokenizer: {name: bytes}
  output: {uri: out, shards: {tokens: 12000}}
"""


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str


class Bench:
    """`folder` holds `job.yaml`, three source files in `src`, and after a run the dataset in `out`.

    The tokenizer is `bytes`, so that a loop of two lines says what the shards must be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "src"
        self.output = folder / "out"
        self.texts = {f"{name}.jsonl": sample_texts(name) for name in "abc"}
        self.source.mkdir()
        for name, texts in self.texts.items():
            (self.source / name).write_bytes(json_lines(texts))
        (folder / "job.yaml").write_text(MANIFEST)

    @property
    def documents(self) -> list[str]:
        return [text for texts in self.texts.values() for text in texts]

    def tokjob(self, *arguments: str, preexec: Callable[[], None] | None = None) -> Result:
        """Run the installed command in `folder` to its end; `preexec` takes a new interpreter."""
        if preexec is None:
            done = run_forked([TOKJOB, *arguments], cwd=self.folder, timeout=TIMEOUT_S)
            return Result(done.returncode, done.stdout.decode(), done.stderr.decode())
        done = subprocess.run(
            [TOKJOB, *arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            preexec_fn=preexec,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def run(self, *changes: tuple[str, str], more: str = "", watch: Watcher = ignore) -> Finished:
        """Run the job in this process; `changes` of the manifest's text, `more` lines of its spec."""
        text = MANIFEST
        for old, new in (*changes, ("[src]", f"[{self.source}]"), ("uri: out", f"uri: {self.output}")):
            text = text.replace(old, new)
        return run_job(TokenizationJob.from_yaml(text + more), executor=inline(), on_progress=watch)

    def stop(self, *changes: tuple[str, str]) -> None:
        """Leave an unfinished run: all ranges are done, and one document of b.jsonl, a bad one, is too many. `changes`
        are those of `run`.
        """
        with (self.source / "b.jsonl").open("ab") as file:
            file.write(b"not JSON\n")
        with pytest.raises(DataError, match="QuarantineExceeded"):
            self.run(*changes)

    def write(self, path: str, content: str | bytes) -> Path:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        return target

    def files(self) -> dict[str, bytes]:
        """Every file below `folder`, and every folder (as empty): what a refused command must leave alone."""
        found = {path: (self.folder / path).read_bytes() for path in files_below(self.folder)}
        return found | {f"{path.relative_to(self.folder)}/": b"" for path in self.folder.rglob("*") if path.is_dir()}


def sample_texts(name: str, count: int = 40) -> list[str]:
    """Documents of 100 to 1,500 bytes, with characters of one to four bytes."""
    return [f"{name}{number} Straße 日本語 🦊. " * (number % 37 + 3) for number in range(count)]


def byte_shards(
    documents: Sequence[str], *, shard_tokens: int = SHARD_TOKENS, path: str = "train/train_{:06d}.npy"
) -> dict[str, bytes]:
    """The shards of `documents` with the byte tokenizer and default options: path -> content."""
    tokens: list[int] = []
    for text in documents:
        tokens += [DELIMITER, *text.encode()]
    shards = {}
    for number, start in enumerate(range(0, len(tokens), shard_tokens)):
        file = io.BytesIO()
        np.save(file, np.array(tokens[start : start + shard_tokens], dtype=np.uint16))
        shards[path.format(number)] = file.getvalue()
    return shards


def shards_of(output: Path) -> dict[str, bytes]:
    """All shard files below `output`."""
    return {path: (output / path).read_bytes() for path in files_below(output) if path.endswith(".npy")}


def read_table(output: Path, name: str) -> list[dict[str, Any]]:
    """The rows of `shards.jsonl.zst`, `_tokenization/files.jsonl.zst` or `_tokenization/quarantine.jsonl.zst`."""
    return [json.loads(line) for line in zstd.decompress((output / name).read_bytes()).splitlines()]


def dataset_of(output: Path) -> dict[str, Any]:
    """Everything that "same bytes" is about: shards, sidecars, tables by their content, the index without its run."""
    content: dict[str, Any] = dict(shards_of(output))
    for path in files_below(output / "_tokenization" / "documents"):
        content[path] = (output / "_tokenization" / "documents" / path).read_bytes()
    for name in ("shards.jsonl.zst", "_tokenization/quarantine.jsonl.zst", "_tokenization/files.jsonl.zst"):
        content[name] = read_table(output, name)
    index = json.loads((output / "index.json").read_bytes())
    del index["run"]
    return content | {"index.json": index}


def ledger_of(output: Path) -> dict[str, tuple[int, bytes]]:
    """Receipts and shards with their time of writing: equal before and after where nothing was done again."""
    paths = [*(output / "_tokenization" / "ledger").rglob("*.json"), *output.rglob("*.npy")]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


class Live:
    """A `tokjob run --json` in a process group of its own, with an `EventPipe`."""

    def __init__(self, bench: Bench, *arguments: str) -> None:
        self._events = EventPipe()
        errors, errors_writer = os.pipe()
        with Path(os.devnull).open("rb") as nothing:
            self.process = Forked(
                [TOKJOB, "run", "--json", *arguments],
                cwd=bench.folder,
                stdin=nothing.fileno(),
                stdout=self._events.writer,
                stderr=errors_writer,
                start_new_session=True,
            )
        os.close(self._events.writer)
        os.close(errors_writer)
        self._errors = os.fdopen(errors)
        self._told = ""

    def wait_for_ranges(self, count: int = 1) -> None:
        assert self._events.read_until(has_ranges(count)), f"the run ended before: {self._errors.read()}"

    def signal(self, number: int, *, group: bool) -> None:
        (os.killpg if group else os.kill)(self.process.pid, number)

    def wait_for_message(self, words: str) -> None:
        """Read messages up to the first one with `words`."""
        for line in self._errors:
            self._told += line
            if words in line:
                return
        raise AssertionError(f"the run never said {words!r}, but: {self._told}")

    def close_events(self) -> None:
        """Nobody reads them any more."""
        self._events.close()

    def finish(self) -> Result:
        """Read on to the end."""
        if not self._events.is_closed:
            self._events.read_to_end()
        code = self.process.wait(TIMEOUT_S)
        return Result(code, "", self._told + self._errors.read())

    def close(self) -> None:
        """Leave nothing of it behind."""
        if self.process.poll() is None:
            self.signal(signal.SIGKILL, group=True)
            self.process.wait()
        self._events.close()
        self._errors.close()


@contextmanager
def live(bench: Bench, *arguments: str) -> Iterator[Live]:
    """A `Live` run that does not outlive the test."""
    run = Live(bench, *arguments)
    try:
        yield run
    finally:
        run.close()


_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2


def obey_permissions() -> None:
    """For `preexec`: file modes count, also for root, who loses the capabilities to ignore them at the exec."""
    if os.geteuid() == 0:
        for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
            if _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "cannot drop capabilities")


class Disk:
    """A small file system of its own; `resize` gives it more room."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def resize(self, size: str) -> None:
        _mount("-o", f"remount,size={size}", self.folder)

    def make_read_only(self) -> None:
        _mount("-o", "remount,ro", self.folder)


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Disk]:
    """A tmpfs of `size` at `folder`; skips the test where this user may not mount."""
    folder.mkdir()
    try:
        _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot mount a tmpfs here: {error}")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def assert_told(result: Result, code: int, *words: str) -> None:
    """The command ended with `code` and a message for a tired person that holds all `words`."""
    assert "Traceback" not in result.err + result.out
    assert result.code == code, result.err
    for word in words:
        assert word in result.err, f"{word!r} is not in:\n{result.err}"
