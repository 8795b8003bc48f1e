"""The errors a caller can act on, one class per answer, and their exit codes.

    TokenizationError          1  a bug of ours (only as the base; never raised itself)
    ├── SpecError              2  fix the manifest or the command
    ├── ChangedError           3  the source changed, or the output holds something else
    ├── DataError              4  data is corrupt, or too much of it is unusable
    └── TemporaryError         5  start again: finished work is kept

The number is the exit code of the command line. `reason` is a CamelCase word that machines compare
(it becomes a condition's reason on Kubernetes); the message is for a tired person: what, where, expected
and found. `next_step` says what to do now. Neither shows a secret that stands in an address (`redact`).
"""

from __future__ import annotations

import pickle
from typing import ClassVar

from tokenization_worker.messages.redact import redact


class TokenizationError(Exception):
    """What went wrong, where, and what to do next."""

    exit_code: ClassVar[int] = 1

    def __init__(self, reason: str, message: str, *, next_step: str = "") -> None:
        self.reason = reason
        self.message = redact(message)
        self.next_step = redact(next_step)
        super().__init__(reason, self.message, self.next_step)

    def __str__(self) -> str:
        text = f"{self.reason}: {self.message}"
        return f"{text}\n  next: {self.next_step}" if self.next_step else text

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.reason, self.message, self.next_step)


def _rebuild(cls: type[TokenizationError], reason: str, message: str, next_step: str) -> TokenizationError:
    return cls(reason, message, next_step=next_step)


class SpecError(TokenizationError):
    """The manifest or the command is wrong; a retry cannot help."""

    exit_code = 2


class ChangedError(TokenizationError):
    """The source is not what the plan recorded, or the output belongs to another job."""

    exit_code = 3


class DataError(TokenizationError):
    """Data is corrupt, or more of it is unusable than the job allows."""

    exit_code = 4


class TemporaryError(TokenizationError):
    """Something outside failed; the same command continues where this one stopped."""

    exit_code = 5


class WorkerDied(TemporaryError):
    """A process that did the work is gone, once too often. A signal to the whole process group does the same."""


def portable(error: BaseException) -> BaseException:
    """`error`, or, where that would not arrive in another process as what it is, one that says the same."""
    try:
        copied = pickle.loads(pickle.dumps(error))
        arrives = (type(copied), str(copied)) == (type(error), str(error))
    except Exception:  # noqa: BLE001  whatever a foreign exception holds, or asks for when it is made
        arrives = False
    if arrives:
        return error
    redacted = RuntimeError(redact(f"{type(error).__name__}: {error}"))
    for note in getattr(error, "__notes__", ()):
        redacted.add_note(redact(note))
    return redacted
