"""`scripts/run_tests.py`: which failed tests get a second chance, and that it hides no failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import CHECKOUT, TESTS

MOST_FAILED = 10

ONCE = """
import os
from pathlib import Path
import pytest

def first_time(name):
    path = Path(__file__).with_name(name)
    if path.exists():
        return False
    path.touch()
    return True
"""
FAILS_ONCE = "\ndef test_once(): assert not first_time('call')\n"
"""As a test that depends on what runs beside it."""

TEARDOWN_FAILS_ONCE = (
    "\n@pytest.fixture\ndef thing():\n yield\n assert not first_time('end')\ndef test_end(thing): ...\n"
)
CRASHES_ONCE = "\ndef test_crash():\n if first_time('crash'): os._exit(1)\n"
IS_ALONE = "\ndef test_alone():\n assert not first_time('alone')\n assert 'PYTEST_XDIST_WORKER' not in os.environ\n"
ALWAYS_FAILS = "\ndef test_broken(): assert False\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider -p xdist.plugin\n", encoding="ascii")
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["support.failed_tests"]\n', encoding="ascii")
    return tmp_path


def run(tree: Path, text: str, *arguments: str) -> tuple[int, str, list[str]]:
    """Exit code, output, and the lines of the file of unsteady tests."""
    (tree / "test_it.py").write_text(ONCE + text, encoding="ascii")
    command = [sys.executable, str(CHECKOUT / "scripts" / "run_tests.py"), "-q", *arguments]
    file = tree / "unsteady"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(TESTS), "UNSTEADY_TESTS": str(file), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def test_what_passes_alone_is_unsteady_and_the_run_is_green(tree: Path) -> None:
    code, output, unsteady = run(tree, FAILS_ONCE + TEARDOWN_FAILS_ONCE + CRASHES_ONCE + IS_ALONE, "-n", "2")
    names = {f"unsteady: test_it.py::test_{name}" for name in ("once", "end", "crash", "alone")}
    assert (code, set(unsteady), len(unsteady)) == (0, names, len(names)), output
    assert names <= set(output.splitlines())


def test_what_fails_alone_too_makes_the_run_red(tree: Path) -> None:
    code, output, unsteady = run(tree, FAILS_ONCE + ALWAYS_FAILS)
    assert (code, unsteady) == (1, ["unsteady: test_it.py::test_once"]), output


def test_many_failures_are_red_at_once(tree: Path) -> None:
    table = (
        f"\n@pytest.mark.parametrize('n', range({MOST_FAILED + 1}))\ndef test_case(n): assert not first_time(str(n))\n"
    )
    code, output, unsteady = run(tree, table)
    assert (code, unsteady) == (1, []), output
    assert f"no second chance: {MOST_FAILED + 1} tests failed" in output


def test_a_module_that_cannot_be_imported_is_red_at_once(tree: Path) -> None:
    code, output, unsteady = run(tree, FAILS_ONCE + "\nimport no_such_module\n", "-n", "2")
    assert (code, unsteady) == (1, []), output
    assert "no second chance: the error is outside of tests" in output
