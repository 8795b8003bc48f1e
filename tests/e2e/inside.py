"""In the sandbox: start the cluster, and run tests on it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from e2e.images import Image
from e2e.node import RealCluster
from e2e.steps import step
from testbed.programs import find_node_programs, find_programs

TESTS = Path(__file__).parent
FOLDER_VARIABLE, IMAGES_VARIABLE = "E2E_FOLDER", "E2E_IMAGES"


def images_of(words: Sequence[str]) -> list[Image]:
    """From words like `localhost/name:tag=archive`."""
    return [Image(name, Path(archive)) for name, _, archive in (each.partition("=") for each in words)]


def main(scratch: Path, images: list[str], words: list[str]) -> int:
    folder = scratch / "cluster"
    found = images_of(images)
    with step("start the control plane and the node"):
        cluster = RealCluster(folder, find_programs(), find_node_programs())
        cluster.up([], found)
    environment = {
        **os.environ,
        FOLDER_VARIABLE: str(folder),
        IMAGES_VARIABLE: " ".join(images),
        "KUBECONFIG": str(cluster.kubeconfig),
        "PATH": f"{cluster.commands}{os.pathsep}{os.environ['PATH']}",
    }
    how = ["-q", "-m", "e2e", "--capture=sys", f"--basetemp={folder / 'tests'}"]
    command = [sys.executable, "-m", "pytest", *how, *words, str(TESTS)]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # pytest ends as it does at Ctrl-C
    return subprocess.run(command, env=environment, check=False, preexec_fn=_hear_interrupts).returncode


def _hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    at = sys.argv.index("--")
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:at], sys.argv[at + 1 :]))
