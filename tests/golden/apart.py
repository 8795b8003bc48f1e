"""Runs of golden jobs in processes of their own, by this code or by that of another checkout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from golden.datasets import Stop
from golden.places import Bucket, Place
from golden.stopped_run import STOPPED
from support.places import CHECKOUT, PROGRAMS

_TESTS = CHECKOUT / "tests"


def run_apart(
    place: Place,
    manifest: Path,
    *,
    stop: Stop | None = None,
    rerun: str = "",
    crashes: bool = False,
    tree: Path = CHECKOUT,
) -> int:
    """Run a job to its end, or to where `stop` says, by the code of `tree`, a checkout. Returns how many tasks it did;
    0 for a killed run, which does not say. `crashes`: texts with the mark kill their process. Raises `RuntimeError`
    where the run ends otherwise, or by other code."""
    command = [sys.executable, str(_TESTS / "golden" / "stopped_run.py"), str(manifest)]
    if stop is not None:
        command += ["--ranges", str(stop.ranges), "--shards", str(stop.shards), *(["--kill"] if stop.killed else [])]
    if rerun:
        command += ["--rerun", rerun]
    done = _start(command, place, [tree / "worker", *([PROGRAMS / "poisoned"] if crashes else [])])
    wanted = 0 if stop is None else -signal.SIGKILL if stop.killed else STOPPED
    if done.returncode != wanted:
        raise RuntimeError(f"{command}: exit code {done.returncode}, expected {wanted}\n{done.stdout}{done.stderr}")
    found = Path(done.stdout.splitlines()[0])
    if not found.is_relative_to(tree.resolve()):
        raise RuntimeError(f"expected a run by the code of {tree}, found that of {found}")
    return 0 if wanted == -signal.SIGKILL else int(done.stdout.splitlines()[-1])


def void_engine(place: Place, manifest: Path) -> None:
    """Run a job with an engine that is wrong, up to the first document in which that is seen."""
    program = PROGRAMS / "flipping_run.py"
    done = _start([sys.executable, str(program), str(manifest), "--sample-one-in", "16"], place, [CHECKOUT / "worker"])
    if "EngineVoided" not in done.stderr:
        raise RuntimeError(f"expected EngineVoided, found exit code {done.returncode}\n{done.stdout}{done.stderr}")


def verify_apart(place: Place, tree: Path = CHECKOUT) -> str:
    """The digest that the code of `tree` proves, with the source."""
    program = (
        "import sys; from tokenization_worker import verify\n"
        "if __name__ == '__main__':\n"
        "    report = verify(sys.argv[1], mode='full', processes=1); assert report.is_clean, report.findings\n"
        "    print(report.digest)"
    )
    done = _start([sys.executable, "-c", program, place.output], place, [tree / "worker"])
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout.strip()


def _start(command: list[str], place: Place, folders: list[Path]) -> subprocess.CompletedProcess[str]:
    added = {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    if isinstance(place, Bucket):
        added["STORAGE_EMULATOR_HOST"] = place.fake.url
    return subprocess.run(
        command, cwd=place.folder, env=os.environ | added, capture_output=True, text=True, timeout=300
    )
