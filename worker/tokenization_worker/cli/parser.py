"""The parser of all commands: an unknown flag is told the nearest one, and every refusal where to look."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from tokenization_worker.cli.escapes import printable, say
from tokenization_worker.redact import is_secret_field


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors say what was meant; exit code 2. `help_flag`: the one that shows every flag."""

    help_flag = "--help"
    advice: Mapping[str, str] = {}
    """What to do in place of a flag that other tools have."""
    _typed: Sequence[str] = ()

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.given: set[str] = set()
        self.register("action", None, _Once)
        self.register("action", "store", _Once)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse does; remembers what was typed, for `error`."""
        self.given.clear()
        self._typed = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (-[^\s=]*)", message)
        if unknown is not None:
            flags = [flag for action in self._actions for flag in action.option_strings]
            near = difflib.get_close_matches(unknown[1], flags, n=1)
            message = f"unknown flag {unknown[1]}" + (f"; did you mean {near[0]}?" if near else "")
            if unknown[1] in self.advice:
                message = f"there is no {unknown[1]}: {self.advice[unknown[1]]}"
        lonely = re.match(r"argument (--[\w.-]+)(?:/\S+)?: expected (?:one|at least one) argument", message)
        if lonely is not None and lonely[1] in self._typed[:-1]:
            value = self._typed[self._typed.index(lonely[1]) + 1]
            shown = "..." if is_secret_field(lonely[1].removeprefix("--")) else value
            message += f"; a value that begins with - follows =: {lonely[1]}={shown}"
        say(f"{self.format_usage()}{self.prog}: error: {printable(message)}", error=True)
        self.exit(2, f"  next: {self.prog} {self.help_flag} shows every flag\n")


class _Once(argparse.Action):
    """Stores a flag's value; refuses a second one, of which the first would be lost in silence."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        assert isinstance(parser, CommandParser)
        if self.option_strings and self.dest in parser.given:
            raise argparse.ArgumentError(self, "given twice; give it once")
        parser.given.add(self.dest)
        setattr(namespace, self.dest, values)
