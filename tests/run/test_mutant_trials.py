"""What `scripts/mutants.py` says of tests that notice a mutant, and of tests that do not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import CHECKOUT

MODULE = "def add(one: int, other: int) -> int:\n    return one + other\n"
TESTS = """
import os
from pathlib import Path
from subprocess import check_output
import sys
from tokenization_worker.room import add

def test_the_sum():
    assert add(2, 3) == 5

def test_a_process():
    assert check_output([sys.executable, "-c", "from tokenization_worker.room import add; print(add(2, 3))"]) == b"5\\n"

def test_a_product():
    assert add(2, 2) == 4
"""
MUTANT = """
[[mutant]]
name = "{words}"
module = "tokenization_worker.room"
old = "one + other"
new = "one * other"
tests = ["test_room.py"]
words = "{words}"
"""


@pytest.mark.exhaustive
def test_a_mutant_must_fail_its_own_tests(tmp_path: Path) -> None:
    for name, text in {
        "worker/tokenization_worker/__init__.py": "",
        "worker/tokenization_worker/room.py": MODULE,
        "operator/tokenization_operator/__init__.py": "",
        "tests/test_room.py": TESTS,
        "tests/mutants/worker/room.toml": "".join(
            MUTANT.format(words=words) for words in ("the_sum", "a_process", "a_product", "no_such_test")
        ),
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    script = tmp_path / "scripts" / "mutants.py"
    script.parent.mkdir()
    shutil.copyfile(CHECKOUT / "scripts" / "mutants.py", script)
    done = subprocess.run(
        [sys.executable, str(script), "--all", "--jobs", "1"], capture_output=True, text=True, check=False
    )
    said = [line.split() for line in done.stdout.splitlines()]
    assert [(line[0], line[3]) for line in said[:-1]] == [
        ("red", "the_sum"),
        ("red", "a_process"),
        ("BAD", "a_product"),
        ("BAD", "no_such_test"),
    ], done.stdout + done.stderr
    assert said[2][4] == "SURVIVED:"
    assert said[3][4:7] == ["pytest", "exit", "5:"]
    assert done.stdout.splitlines()[-1].startswith("2 of 4 mutants turn tests red")
    assert done.returncode == 1
    assert (tmp_path / "worker/tokenization_worker/room.py").read_text(encoding="utf-8") == MODULE
