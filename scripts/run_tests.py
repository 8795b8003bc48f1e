"""Run pytest, and give failed tests one second chance: alone, after all others, one after the other.

    python scripts/run_tests.py ARGUMENTS OF PYTEST

A test that fails beside others and passes alone depends on how busy the machine is. Such a test is a defect of the
test, and no reason to refuse a change: the run stays green and prints `unsteady: TEST`. The file that the variable
UNSTEADY_TESTS names, if any, gets the same line.

Files of tests are in memory where there is room: making and deleting them on a disk takes a fifth of the time.

There is no second chance if more than 10 tests failed, and none for an error outside of tests: a module that pytest
cannot import, an interrupt, wrong arguments.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

MOST_FAILED = 10
MEMORY = Path("/dev/shm")
NEEDED_BYTES = 4 << 30
"""Of memory for files; they take 1 GB at the most as long as tests pass (2026-11-29)."""
VARIABLE = "UNSTEADY_TESTS"


def main(arguments: Sequence[str]) -> int:
    """The exit code for the whole: pytest's, or 0 if every failed test passes alone."""
    with tempfile.TemporaryDirectory(prefix="failed-tests-") as folder:
        first, second = Path(folder) / "first", Path(folder) / "second"
        code = run_pytest(first, arguments)
        if code != 1:  # 1: pytest ran to its end, and tests failed
            return code
        failed = first.read_text(encoding="utf-8").splitlines()
        if not failed:
            print("no second chance: the error is outside of tests", flush=True)
            return code
        if len(failed) > MOST_FAILED:
            print(f"no second chance: {len(failed)} tests failed, and at most {MOST_FAILED} get one", flush=True)
            return code
        print(f"second chance, alone, for {len(failed)} failed tests:", flush=True)
        code = run_pytest(second, ["-n", "0", f"@{first}"])
        if code in (0, 1):
            failed_again = second.read_text(encoding="utf-8").splitlines()
            report([name for name in failed if name not in failed_again])
        return code


def run_pytest(failed: Path, arguments: Sequence[str]) -> int:
    """The exit code of a pytest that writes the ids of failed tests to that file."""
    command = [sys.executable, "-m", "pytest", f"--write-failed={failed}", *arguments]
    environment = dict(os.environ)
    if "TMPDIR" not in environment and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= NEEDED_BYTES:
        environment["TMPDIR"] = str(MEMORY)
        command += ["--override-ini", "tmp_path_retention_policy=failed"]
    return subprocess.run(command, env=environment, check=False).returncode


def report(unsteady: Sequence[str]) -> None:
    lines = "".join(f"unsteady: {name}\n" for name in unsteady)
    print(lines, end="", flush=True)
    if path := os.environ.get(VARIABLE):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
