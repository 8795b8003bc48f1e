#!/usr/bin/env python3
"""Print what the package needs, a requirement a line, as pyproject.toml has it.

    python scripts/requirements.py [EXTRA ...]               of the package and of these extras
    python scripts/requirements.py --only EXTRA [EXTRA ...]  of the extras alone

An image installs these first, so that a change of the sources does not install them again.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def main(words: list[str]) -> int:
    """`words`: of the command line; returns the exit code."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    only = words[:1] == ["--only"]
    extras = project["optional-dependencies"]
    names = words[1:] if only else words
    unknown = sorted(set(names) - set(extras))
    if unknown:
        print(f"no such extra: {', '.join(unknown)}; there are {', '.join(sorted(extras))}", file=sys.stderr)
        return 2
    print("\n".join([*([] if only else project["dependencies"]), *(each for name in names for each in extras[name])]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
