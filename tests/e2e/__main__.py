"""From nothing to verified datasets on a real node of this machine: `python -m e2e [words of pytest]`."""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from e2e.images import REBUILT_VARIABLE, BuildFailed, Image, find_image, find_pause, find_rebuilt
from e2e.machine import CANNOT, find_lacks, try_sandbox
from e2e.next_version import NEXT_VARIABLE, make_next_version
from e2e.sandbox import run_inside
from e2e.steps import note, step
from e2e.traces import adopt_orphans, find_traces
from e2e.version_before import BEFORE_VARIABLE, find_version_before
from testbed.programs import Unavailable, find_helm, find_node_programs, find_programs

_SCRATCH, _LOGS, _LOCK = (Path(tempfile.gettempdir()) / f"tokenization-e2e{end}" for end in ("", "-logs", ".lock"))
"""Of the machine, as its control groups are: there can be one node."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="e2e", description=__doc__)
    parser.add_argument("--runs", type=int, default=1, help="so many times, each on a node of its own (%(default)s)")
    options, words = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    lacks = find_lacks()
    if not lacks:
        lock = _LOCK.open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("one runs on this machine already", file=sys.stderr)
            return 1
        lacks = try_sandbox(_SCRATCH)
    if lacks:
        for lack in lacks:
            print(f"no real node on this machine: {lack}", file=sys.stderr)
        return CANNOT
    adopt_orphans()
    before = find_traces()
    try:
        with step("build the programs of the control plane and the node"):
            find_programs()
            find_helm()
            pause = find_node_programs().folder / "pause"
        with step("build the images"):
            images = [find_pause(pause), find_image("operator"), find_image("worker")]
            again = None if "e2e and core" in words or "-k" in words else find_rebuilt("operator")
        if "e2e and core" not in words:
            with step("build the image that trains tokenizers"):
                images.append(find_image("worker", version="train", EXTRAS="parquet,train"))
            with step("build the images of the versions before and after"):
                for name, variable, tree in (
                    ("next", NEXT_VARIABLE, make_next_version()),
                    ("before", BEFORE_VARIABLE, find_version_before()),
                ):
                    if tree is not None:
                        images += [find_image(target, tree=tree, version=name) for target in ("operator", "worker")]
                        os.environ[variable] = str(tree)
    except (Unavailable, BuildFailed) as error:
        print(error, file=sys.stderr)
        return 1
    for number in range(options.runs):
        if options.runs > 1:
            note(f"run {number + 1} of {options.runs}")
        code = _run_once([f"{image.name}={image.archive}" for image in images], again, words)
        left = sorted(find_traces() - before)
        for trace in left:
            print(f"the machine is not as it was: {trace}", file=sys.stderr)
        if code or left:
            return 1
    return 0


def _run_once(images: list[str], again: Image | None, words: list[str]) -> int:
    """`again`: an image that was built twice, for a test; the node does not need it, and `core` does without."""
    if again is not None:
        os.environ[REBUILT_VARIABLE] = f"{again.name}={again.archive}"
    _SCRATCH.mkdir()
    try:
        return run_inside([sys.executable, "-m", "e2e.inside", str(_SCRATCH), *images, "--", *words], _SCRATCH)
    finally:  # also where somebody has ended it, who wants to know more
        with step("collect the logs"):
            shutil.rmtree(_LOGS, ignore_errors=True)
            _collect(_SCRATCH / "cluster", _LOGS)
        shutil.rmtree(_SCRATCH)
        note(f"logs: {_LOGS}")


def _collect(folder: Path, logs: Path) -> None:
    logs.mkdir(parents=True)
    for name in ("processes", "node/logs", "kept"):
        if (folder / name).exists():
            shutil.copytree(folder / name, logs / name.rpartition("/")[2], symlinks=True)


if __name__ == "__main__":
    os.environ.pop("KUBECONFIG", None)
    sys.exit(main())
