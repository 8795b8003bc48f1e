"""No test module imports another one: what several of them need is in `support`."""

from __future__ import annotations

import ast
from pathlib import Path

from support.places import TESTS


def imported_modules(path: Path) -> set[str]:
    """The last name of each module that the file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.rpartition(".")[2] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {(node.module or "").rpartition(".")[2], *(alias.name for alias in node.names)}
    return names


def test_no_test_module_is_imported() -> None:
    files = list(TESTS.rglob("*.py"))
    test_modules = {path.stem for path in files if path.name.startswith("test_")}
    assert len(test_modules) > 100
    assert {path.name: names for path in files if (names := imported_modules(path) & test_modules)} == {}
