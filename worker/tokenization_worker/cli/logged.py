"""Prints warnings of `logging` for a command: of this package and of libraries, escaped and without secrets.

A program that uses this package as a library decides itself where its log goes; nothing here is loaded then. A command
configures no handler, so Python's handler of last resort prints: the message alone, from WARNING on, to standard error.
Ours takes its place and differs in nothing but the escapes.
"""

from __future__ import annotations

import logging

from tokenization_worker.cli.escapes import printable, say
from tokenization_worker.messages.redact import redact

_OWN = "tokenization_worker"


class EscapedWarnings(logging.Handler):
    """Prints records as all other messages of a command."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = redact(self.format(record))
            is_one_line = record.name.partition(".")[0] == _OWN and not record.exc_info
            say(printable(text) if is_one_line else text, error=True)  # no name in it may begin a line
        except Exception:  # noqa: BLE001  as every handler of `logging`: a record ends no command
            self.handleError(record)


def escape_warnings() -> None:
    """Print, from now on, what no handler takes through `EscapedWarnings`; in spawned workers, too."""
    from tokenization_worker.host import main_guard  # 10 ms, which commands that use workers have paid already

    logging.lastResort = EscapedWarnings(logging.WARNING)
    main_guard.call_first_in_workers(escape_warnings)
