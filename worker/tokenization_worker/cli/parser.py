"""The parser of all commands: an unknown flag is told the nearest one, and every refusal where to look."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from typing import NoReturn


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors say what was meant; exit code 2."""

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (-[^\s=]*)", message)
        if unknown is not None:
            flags = [flag for action in self._actions for flag in action.option_strings]
            near = difflib.get_close_matches(unknown[1], flags, n=1)
            message = f"unknown flag {unknown[1]}" + (f"; did you mean {near[0]}?" if near else "")
        print(f"{self.format_usage()}{self.prog}: error: {message}", file=sys.stderr)
        self.exit(2, f"  next: {self.prog} --help shows every flag\n")
