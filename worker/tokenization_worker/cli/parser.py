"""The argument parser of all commands: it suggests the nearest flag, and names the help in every refusal."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from tokenization_worker.cli.escapes import printable, say
from tokenization_worker.messages.redact import is_secret_field


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
        self._refuse_long_dash()
        return super().parse_known_args(args, namespace)

    def _flags(self) -> list[str]:
        return [flag for action in self._actions for flag in action.option_strings]

    def _refuse_long_dash(self) -> None:
        """Raise for a flag whose hyphens a text editor or a web page has made one dash."""
        for word in self._typed:
            name = word.lstrip(f"-{_DASHES}").partition("=")[0]
            if word[:1] in _DASHES and (f"--{name}" in self._flags() or f"--{name}" in self.advice):
                self.error(f"{word} begins with {word[0]!r}, which is no hyphen; write --{name} with two hyphens")

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (-[^\s=]*)", message)
        if unknown is not None:
            near = _nearest_flags(unknown[1], self._flags())
            message = f"unknown flag {unknown[1]}" + (f"; did you mean {' or '.join(near)}?" if near else "")
            if unknown[1] in self.advice:
                message = f"there is no {unknown[1]}: {self.advice[unknown[1]]}"
        lonely = re.match(r"argument (--[\w.-]+)(?:/\S+)?: expected (?:one|at least one) argument", message)
        if lonely is not None and lonely[1] in self._typed[:-1]:
            value = self._typed[self._typed.index(lonely[1]) + 1]
            is_flag = value.partition("=")[0] in self._flags()
            shown = "..." if is_secret_field(lonely[1].removeprefix("--")) else value
            if is_flag:
                message = f"{lonely[1]} has no value: {value.partition('=')[0]}, which is a flag, follows it"
            else:
                message += f"; a value that begins with - follows =: {lonely[1]}={shown}"
        say(f"{self.format_usage()}{self.prog}: error: {printable(message)}", error=True)
        self.exit(2, f"  next: {self.prog} {self.help_flag} shows every flag\n")


_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_LEAST_LIKE = 0.75
"""`tokeniser` and `tokenizer` have 0.89, `outptu.path` and `output.path` 0.91; `input` and `output` 0.55."""
_MOST_PLACES = 2


def _nearest_flags(unknown: str, flags: Sequence[str]) -> list[str]:
    """The flags that a person may have meant: in another spelling, by the end of their path, or with a typo."""
    names = {flag: _plain(flag) for flag in flags if flag.startswith("--")}
    wanted = _plain(unknown)
    ends = [flag for flag in names if wanted and _plain(flag.rpartition(".")[2]) == wanted]
    same = [flag for flag, name in names.items() if name == wanted] or ends
    if same and len(same) <= _MOST_PLACES:
        return same
    by_name = {flag.lstrip("-").lower(): flag for flag in names}
    near = difflib.get_close_matches(unknown.lstrip("-").lower(), by_name, n=1, cutoff=_LEAST_LIKE)
    return [by_name[name] for name in near]


def _plain(flag: str) -> str:
    return re.sub(r"[-_.]", "", flag).lower()


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
