"""The mutants of `make mutants`: each one still applies, and those that do not are named with what to change."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from support.places import CHECKOUT

ADD = '    return "a" + name\n'
MODULES = {
    "worker/tokenization_worker/__init__.py": "",
    "worker/tokenization_worker/room/__init__.py": "",
    "worker/tokenization_worker/room/one.py": f"def one(name: str) -> str:\n{ADD}",
    "worker/tokenization_worker/room/two.py": 'def two(name: str) -> str:\n    return "b" + name\n',
    "operator/tokenization_operator/__init__.py": "",
    "tests/test_one.py": "",
    "tests/test_two.py": "",
}
ONE = """
[[mutant]]
name = "one"
module = "tokenization_worker.room.one"
old = '"a" + name'
new = "name"
tests = ["test_one.py"]
"""
TWO = ONE.replace("one", "two").replace('"a"', '"b"')


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("script_of_mutants", CHECKOUT / "scripts" / "mutants.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mutants = load_script()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout of two modules with a mutant each."""
    write(tmp_path, {**MODULES, "tests/mutants/worker/room.toml": ONE + TWO})
    return tmp_path


def write(tree: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_every_mutant_applies() -> None:
    checkout = mutants.Checkout(CHECKOUT)
    assert len(checkout.mutants) > 300
    assert list(checkout.problems()) == []


def test_a_tree_whose_mutants_apply_has_no_problem(tree: Path) -> None:
    assert list(mutants.Checkout(tree).problems()) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param(
            {"worker/tokenization_worker/room/one.py": "def one() -> None: ...\n"},
            "its text occurs 0 times in tokenization_worker.room.one",
            id="text is gone",
        ),
        pytest.param(
            {"worker/tokenization_worker/room/one.py": f"def one(name: str) -> str:\n{ADD}{ADD}"},
            "its text occurs 2 times in tokenization_worker.room.one",
            id="text is there twice",
        ),
        pytest.param(
            {"worker/tokenization_worker/room/one.py": "", "operator/tokenization_operator/new.py": ADD},
            "its text has lost its module tokenization_worker.room.one;"
            ' it moved: write module = "tokenization_operator.new"',
            id="text moved",
        ),
        pytest.param(
            {"tests/mutants/worker/room.toml": ONE.replace('"name"', '"name +"')},
            "tokenization_worker.room.one is no longer Python with it: line 2: invalid syntax",
            id="no Python",
        ),
        pytest.param(
            {"tests/mutants/worker/room.toml": ONE.replace("test_one", "test_three")},
            "no file below tests/ is called test_three.py",
            id="no such test",
        ),
        pytest.param(
            {"tests/mutants/worker/room.toml": "mutant = []", "tests/mutants/operator/room.toml": ONE},
            "tokenization_worker.room.one belongs to another room: move the mutant to tests/mutants/worker/room.toml",
            id="another package",
        ),
        pytest.param(
            {"tests/mutants/worker/room.toml": ONE + ONE.replace("test_one", "test_two")},
            "2 mutants have this name",
            id="same name",
        ),
    ],
)
def test_a_mutant_that_does_not_apply_is_named_with_its_problem(
    tree: Path, change: dict[str, str], problem: str
) -> None:
    write(tree, change)
    (found,) = mutants.Checkout(tree).problems()
    assert found.endswith(f"one: {problem}")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"worker/tokenization_worker/room/two.py": '"b" + name'}, ["two"], id="a module"),
        pytest.param({"tests/test_one.py": "# other"}, ["one"], id="a test"),
        pytest.param({"tests/mutants/worker/room.toml": ONE + TWO.replace('"name"', '"0"')}, ["two"], id="a mutant"),
        pytest.param(
            {
                "tests/mutants/operator/new.toml": ONE.replace("worker.room.one", "operator.new").replace("one", "new"),
                "tests/test_new.py": "",
                "operator/tokenization_operator/new.py": ADD,
            },
            ["new"],
            id="a file of mutants",
        ),
    ],
)
@pytest.mark.parametrize("is_committed", [True, False])
def test_work_since_a_revision_chooses_the_mutants_that_it_touches(
    tree: Path, change: dict[str, str], names: list[str], is_committed: bool
) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(tree), *arguments], check=True, capture_output=True)

    git("init", "--quiet")
    git("config", "user.name", "somebody")
    git("config", "user.email", "somebody@example.com")
    git("add", ".")
    git("commit", "--quiet", "--message", "before")
    git("tag", "before")
    write(tree, change)
    if is_committed:
        git("add", ".")
        git("commit", "--quiet", "--allow-empty", "--message", "after")
    assert [mutant.name for mutant in mutants.Checkout(tree).touched("before")] == names
