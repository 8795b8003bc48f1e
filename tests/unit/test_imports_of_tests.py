"""No test module imports another one: what several of them need is in `support`."""

from __future__ import annotations

import re

from support.places import TESTS

IMPORT = re.compile(r"^\s*(?:from|import)\s+(?:[\w.]*\.)?(test_\w+)", re.MULTILINE)


def test_no_test_module_is_imported() -> None:
    files = list(TESTS.rglob("*.py"))
    test_modules = {path.stem for path in files if path.name.startswith("test_")}
    assert len(test_modules) > 100
    assert IMPORT.findall("from test_a import b\nimport run.test_c\n") == ["test_a", "test_c"]
    imported = {path.name: set(IMPORT.findall(path.read_text(encoding="utf-8"))) & test_modules for path in files}
    assert {name: names for name, names in imported.items() if names} == {}
