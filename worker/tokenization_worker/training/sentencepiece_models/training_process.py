"""Trains a SentencePiece model in a process of its own, which can be killed.

The trainer is one call of minutes or hours, which looks at no signal, and of some errors it ends its process. So the
caller waits here, and may leave at any moment. The process is a new program and no fork: in a fork of a process that
has trained Unigram before, the trainer died of SIGSEGV each time (0.2.3, 2026-11-29; it uses OpenMP).
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from tokenization_worker.errors import TemporaryError, portable
from tokenization_worker.processes import exit_words
from tokenization_worker.training.pieces import Pieces
from tokenization_worker.training.sentencepiece_models.model_trainer import train_sentencepiece

_LOOK_S = 0.2
"""Between two calls of `while_waiting`."""

_COMMAND = f"import sys; fd, *sys.path = sys.argv[1:]; from {__name__} import main; main(int(fd))"


def train_apart(
    pieces: Pieces,
    algorithm: str,
    vocab_size: int,
    special_tokens: tuple[str, ...],
    *,
    while_waiting: Callable[[], None] = lambda: None,
) -> bytes:
    """`train_sentencepiece` in another process. Raises what it raises; `TemporaryError` where the process dies.

    `while_waiting` is called some times a second; the process is killed with what it raises. Starting takes half a
    second and, for a moment, memory for the pieces once more.
    """
    ours, theirs = Pipe()
    with ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _COMMAND, str(theirs.fileno()), *sys.path],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        try:
            ours.send((pieces, algorithm, vocab_size, special_tokens))
            while not ours.poll(_LOOK_S):
                while_waiting()
            result = ours.recv()
        except (EOFError, OSError) as error:
            raise TemporaryError(
                "TrainerDied",
                f"the process that trains the tokenizer died: {exit_words(process.wait())}",
                next_step="start the same command again, which goes on from the counts; if memory is short, on a "
                "larger machine",
            ) from error
        finally:
            process.kill()
            process.wait()
    if isinstance(result, BaseException):
        raise result
    model: bytes = result
    return model


def main(fd: int) -> None:
    """Train what the process at the other end of `fd` sends, and end with that process."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the other process answers them
    pipe = Connection(fd)
    asked = pipe.recv()
    threading.Thread(target=_leave_with_caller, args=(fd,), daemon=True).start()
    try:
        answer: object = train_sentencepiece(*asked)
    except Exception as error:  # noqa: BLE001  the caller's to raise
        answer = portable(error)
    pipe.send(answer)


def _leave_with_caller(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, 0)  # hang-ups are always told
    poll.poll()
    os._exit(1)
