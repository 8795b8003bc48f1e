"""Plain words for users: README, docs, and every text that a program may print."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from support.places import CHECKOUT

PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
MODULES = sorted((CHECKOUT / "worker").rglob("*.py")) + sorted((CHECKOUT / "operator").rglob("*.py"))
UNPLAIN = re.compile(
    r"\b(whoever|somebody|what is there|as a rule|so long as nobody|thousand million|mend(s|ed|ing)?|the word of)\b",
    re.IGNORECASE,
)


def printed_texts(module: Path) -> list[str]:
    """String constants that are no docstring: what may become a message, a help text or a field's description."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_use_plain_words(page: Path) -> None:
    assert [line for line in page.read_text(encoding="utf-8").splitlines() if UNPLAIN.search(line)] == []


def test_messages_use_plain_words() -> None:
    found = {(module.name, text) for module in MODULES for text in printed_texts(module) if UNPLAIN.search(text)}
    assert found == set()


TWICE = re.compile(r"\b([a-z]{2,}) \1\b")


def test_no_word_stands_twice() -> None:
    texts = {(module.name, text) for module in MODULES for text in printed_texts(module)}
    texts |= {(page.name, line) for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()}
    assert {(name, text) for name, text in texts if TWICE.search(text)} == set()
