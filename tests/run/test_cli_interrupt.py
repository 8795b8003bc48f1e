"""Ctrl-C in a command's first moments ends it with 130 and a word, not with a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

INTERRUPTED_IMPORT = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.modules.pop({name!r}, None)
from tokenization_worker.cli.main import main
sys.exit(main(["status", "nowhere"]))
"""


@pytest.mark.parametrize("name", ["tokenization_worker.cli.interrupts", "argparse", "numpy"])
def test_an_interrupt_during_an_import_is_no_traceback(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT.format(name=name)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "tokjob: stopped\n")


def test_nothing_is_imported_before_an_interrupt_has_its_answer() -> None:
    look = (
        "import sys; before = set(sys.modules); import tokenization_worker.cli.main; print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {
        "__future__",
        "tokenization_worker",
        "tokenization_worker.cli",
        "tokenization_worker.cli.main",
    }
