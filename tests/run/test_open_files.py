"""A process that may open too few files says so, with the limit, what is needed and the command that raises it."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command_line import Bench, assert_told
from tokenization_worker.errors import SpecError, TemporaryError, TokenizationError
from tokenization_worker.host.open_files import explain_open_files, files_needed, require_open_files
from tokenization_worker.storage.local.store import LocalStore
from tokenization_worker.storage.sources import open_source


def limited(soft: int, hard: int | None = None) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft if hard is None else hard))


@pytest.mark.parametrize("limit", [8, 16, 32, 64])
def test_a_run_that_may_open_too_few_files_is_told_before_it_begins(limit: int, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    told = bench.tokjob("run", "job.yaml", "--processes", "16", preexec=limited(limit))
    assert_told(
        told, 2, "OpenFilesLimit", f"may open {limit} files", f"needs {'32' if limit < 32 else '80'}", "ulimit -n"
    )
    assert not bench.output.exists()


@pytest.mark.parametrize("command", [["status", "out"], ["verify", "out"]], ids=lambda words: words[0])
def test_other_commands_say_so_too(command: list[str], tmp_path: Path) -> None:
    assert_told(Bench(tmp_path).tokjob(*command, preexec=limited(8)), 2, "OpenFilesLimit", "may open 8", "ulimit -n")


@pytest.mark.parametrize("processes", [1, 8])
def test_what_is_asked_for_is_enough_and_the_soft_limit_is_raised_to_it(processes: int, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    limit = limited(20, files_needed(processes, has_store=False))
    options = ("--processes", str(processes), "--rangeBytes", "4Ki", "--output.shards.tokens", "1000")
    assert_told(bench.tokjob("run", "job.yaml", *options, preexec=limit), 0)


def test_a_limit_that_may_not_be_raised_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"soft": 100, "hard": 200}
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limits["soft"], limits["hard"]))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.update(soft=pair[0]))
    require_open_files(150)
    assert limits == {"soft": 150, "hard": 200}
    with pytest.raises(SpecError, match=r"may open 150 files at once, and needs 201"):
        require_open_files(201)
    limits["soft"] = resource.RLIM_INFINITY
    require_open_files(10**9)


def too_many(*_: object, **__: object) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize(
    "attempt",
    [
        lambda folder: LocalStore(folder).read("a"),
        lambda folder: list(LocalStore(folder).list()),
        lambda folder: LocalStore(folder).upload("b"),
        lambda folder: open_source(str(folder / "a")),
    ],
    ids=["read", "list", "write", "source"],
)
def test_files_that_run_out_while_a_run_goes_on_are_told(
    attempt: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"x")
    monkeypatch.setattr(os, "open", too_many)
    with pytest.raises(SpecError, match="ulimit -n") as raised:
        attempt(tmp_path)
    assert raised.value.reason == "OpenFilesLimit"


def chained(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


FULL = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FULL, SpecError),
        (chained(TemporaryError("StorageFailed", "cannot read"), FULL), SpecError),
        (ImportError("libz.so: cannot open shared object file: Too many open files"), SpecError),
        (OSError(errno.ENFILE, os.strerror(errno.ENFILE)), TemporaryError),
        (OSError(errno.EIO, os.strerror(errno.EIO)), None),
        (ImportError("no module named x"), None),
    ],
    ids=["error", "cause", "loader", "machine", "disk", "import"],
)
def test_the_limit_is_found_as_the_cause_of_another_error(
    error: BaseException, kind: type[TokenizationError] | None
) -> None:
    told = explain_open_files(error)
    assert told is None if kind is None else type(told) is kind and told.reason == "OpenFilesLimit"


def test_errors_that_cause_each_other_are_looked_at_once() -> None:
    first, second = ValueError("first"), OSError(errno.EMFILE, "Too many open files")
    first.__cause__, second.__cause__ = second, first
    assert isinstance(explain_open_files(first), SpecError)
    second.errno = errno.EIO
    assert explain_open_files(first) is None
