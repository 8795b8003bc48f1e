"""Standard output and error, as they are, and taken down."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class _Both:
    """An output whose text `take` gets, too. Everything else is the output's own."""

    def __init__(self, output: Any, take: Callable[[str], None]) -> None:
        self._output = output
        self._take = take

    def write(self, text: str, /) -> int:
        self._take(text)
        written: int = self._output.write(text)
        return written

    def writelines(self, lines: Any, /) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)


@contextmanager
def taking_output(take: Callable[[str], None]) -> Iterator[None]:
    """Give `take` what this process prints within the block; what others write to its descriptors is not seen."""
    before = sys.stdout, sys.stderr
    both: Any = [_Both(output, take) for output in before]
    sys.stdout, sys.stderr = both
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
