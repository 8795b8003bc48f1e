"""Checks arguments of the Python API, which no manifest and no command line has checked."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.errors import SpecError

MAX_PROCESSES = 1024
"""More than any machine has use for; ten times that many can leave one without process ids."""


def require_job(function: str, value: object) -> None:
    """Raise `SpecError` unless `value`, which `function` was called with, is a job."""
    if not isinstance(value, TokenizationJob):
        kind = type(value).__name__
        maker = "from_object" if isinstance(value, dict) else "from_yaml" if isinstance(value, _NAMES_A_FILE) else "of"
        found = f"{function} takes a TokenizationJob, found {kind}"
        raise SpecError("SpecInvalid", found, next_step=f"make a job with TokenizationJob.{maker}(...)")


_NAMES_A_FILE = (str, os.PathLike)


def require_count(name: str, value: int | None) -> None:
    """Raise `SpecError` unless `value` is None or a whole number, at least 1."""
    if value is not None and (not isinstance(value, int) or value < 1):
        found = f"{name}: found {value!r}, expected a whole number, at least 1"
        raise SpecError("SpecInvalid", found, next_step="give such a number")


def require_processes(value: int | None) -> None:
    """Raise `SpecError` unless `value` is None or a number of processes that a machine can start."""
    require_count("processes", value)
    if value is not None and value > MAX_PROCESSES:
        found = f"processes: found {value:,}, expected at most {MAX_PROCESSES:,}"
        raise SpecError("SpecInvalid", found, next_step="give the number of cores, or leave it out")


def require_one_of(name: str, value: str, choices: Iterable[str]) -> None:
    """Raise `SpecError` unless `value` is one of `choices`."""
    known = [str(choice) for choice in choices]
    if value not in known:
        raise SpecError("SpecInvalid", f"{name}: found {value!r}", next_step=f"give one of {', '.join(known)}")


def require_instance(name: str, value: object, kind: type) -> None:
    """Raise `SpecError` unless `value` is None or a `kind` of this package."""
    if value is not None and not isinstance(value, kind):
        found = f"{name}: found {type(value).__name__}, expected {kind.__name__}"
        raise SpecError("SpecInvalid", found, next_step=f"give {kind.__name__}(...) of tokenization_worker")


def require_function(name: str, value: object, signature: str) -> None:
    """Raise `SpecError` unless `value` can be called; `signature`: how it is, such as `should_stop() -> bool`."""
    if not callable(value):
        found = f"{name}: found {value!r}, expected a function, {signature}"
        raise SpecError("SpecInvalid", found, next_step="give such a function, or leave it out")


def require_place(function: str, value: object) -> None:
    """Raise `SpecError` unless `value`, which `function` was called with, is a path or URI."""
    if isinstance(value, TokenizationJob):
        found = f"{function} takes the place of a dataset, found TokenizationJob"
        raise SpecError("SpecInvalid", found, next_step="give the job's output: job.spec.output.uri")
    if not isinstance(value, _NAMES_A_FILE) or not os.fspath(value):
        found = f"{function} takes the place of a dataset, a path or URI, found {value!r}"
        raise SpecError("SpecInvalid", found, next_step="give the output.uri of a finished job")
