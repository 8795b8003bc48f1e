"""The limit of open files: raises it before the work, and names it in the error when it is reached.

The limit is `ulimit -n`, of each process. What a shell sets for itself (the soft limit) is raised as far as it may be.
"""

from __future__ import annotations

import errno
import resource
from contextlib import suppress

from tokenization_worker.errors import SpecError, TemporaryError, TokenizationError
from tokenization_worker.messages.causes import chain_of

LEAST = 32
"""A run in one process had 22 open at once (2026-11-23): modules that load, receipts, a segment, its folders."""

OF_A_STORE = 64
"""Connections to a store, twice: those that end and those that take their places."""

_OF_A_PROCESS = 3
"""Of a worker process in its parent: two ends of pipes, and one while it starts."""

_SAID_BY_LOADERS = "Too many open files"
"""An extension module that cannot be opened is no OSError."""


def files_needed(processes: int, *, has_store: bool) -> int:
    """Files that a run has open at once in its first process, with so many workers, and a store that is far away."""
    return LEAST + _OF_A_PROCESS * processes + (OF_A_STORE if has_store else 0)


def require_open_files(needed: int) -> None:
    """Raise `SpecError` unless this process may open so many files; raises the soft limit where that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _is_enough(soft, needed):
        return
    if _is_enough(hard, needed):
        with suppress(ValueError, OSError):  # where the system has a lower one than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
            return
    raise _limited(f"this process may open {soft:,} files at once, and needs {needed:,}", needed)


def explain_open_files(error: BaseException) -> TokenizationError | None:
    """The error to tell in place of one that was caused by the limit; None where it was not."""
    for cause in chain_of(error):
        if isinstance(cause, OSError) and cause.errno == errno.ENFILE:
            return TemporaryError(
                "OpenFilesLimit",
                f"the processes of this machine have opened as many files as it allows: {cause}",
                next_step="end other programs, or raise fs.file-max (sysctl), and start the same command again",
            )
        is_named = isinstance(cause, OSError) and cause.errno == errno.EMFILE
        if is_named or (isinstance(cause, ImportError) and _SAID_BY_LOADERS in str(cause)):
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            return _limited(
                f"this process may open {soft:,} files at once, and needs more: {cause}", max(1024, 2 * soft)
            )
    return None


def _is_enough(limit: int, needed: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= needed


def _limited(detail: str, needed: int) -> SpecError:
    return SpecError(
        "OpenFilesLimit",
        detail,
        next_step=f"raise the limit (ulimit -n {max(needed, 1024)}; for a service LimitNOFILE, for a container "
        "--ulimit nofile), or give fewer --processes, and start the same command again; finished work is kept",
    )
