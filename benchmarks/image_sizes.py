#!/usr/bin/env python3
"""Build the images, the worker with each of its extras, and print how large they are unpacked. Needs root.

    python benchmarks/image_sizes.py [EXTRAS ...]       default: none, parquet, hf, s3, sentencepiece

Sizes are without the base image: Debian's bookworm with its Python stands for it here.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from e2e.images import BASE, build, remove, size_of

NAME = "localhost/weighed"
EXTRAS = ("", "parquet", "hf", "s3", "sentencepiece")


def main(chosen: list[str]) -> int:
    """`chosen`: values of the build argument EXTRAS; returns the exit code."""
    if os.geteuid():
        print("only root can build images here", file=sys.stderr)
        return 1
    build("operator", NAME, {})
    base = size_of(BASE)
    print(f"operator               {(size_of(NAME) - base) / 1e6:6.0f} MB")
    for extras in chosen or EXTRAS:
        build("worker", NAME, {"EXTRAS": extras})
        print(f"worker {extras or '(none)':15} {(size_of(NAME) - base) / 1e6:6.0f} MB", flush=True)
    remove(NAME)
    print(f"base                   {base / 1e6:6.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
