"""The documentation is complete: every reason, command, flag and field has its place, and links lead somewhere."""

from __future__ import annotations

import argparse
import ast
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import tokenization_worker
from support.pages import read, table_heads
from support.places import CHECKOUT
from support.runs import TOKJOB
from tokenization_worker.cli.dispatch import COMMANDS
from tokenization_worker.errors import TokenizationError
from tokenization_worker.readers.document_batch import FileOutcome, Reason
from tokenization_worker.verification.report import Fault

DOCS = CHECKOUT / "docs"
PAGES = sorted([CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
SOURCES = sorted(Path(tokenization_worker.__file__).parent.rglob("*.py"))

VARIABLE_REASONS = {
    "dropped[file]",
    "outcome",
    "FileOutcome.SCHEMA_MISMATCH.value",
    "access.reason",
    "self._lost_reason",
}
"""Where a reason is a file's outcome, or that of an `Access` or a pipeline; everywhere else it must be written out."""


def error_classes(root: type[Exception] = TokenizationError) -> Iterator[str]:
    """The names of the error classes, whichever module they are in."""
    yield root.__name__
    for child in root.__subclasses__():
        yield from error_classes(child)


def keywords(source: Path, name: str) -> Iterator[ast.expr]:
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.keyword) and node.arg == name:
            yield node.value


def calls(source: Path, names: set[str]) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and node.args:
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if function in names:
                yield node


@cache
def raised_reasons() -> dict[str, str]:
    """Every reason that the worker writes out -> a module that does."""
    for module in ("output.create_only", "dataset.dataset"):  # they define error classes of their own
        import_module(f"tokenization_worker.{module}")
    names = set(error_classes())
    found: dict[str, str] = {}
    for source in SOURCES:
        reasons = [call.args[0] for call in calls(source, names)]
        reasons += [call.args[2] for call in calls(source, {"Access"})]
        reasons += keywords(source, "lost_reason")
        for reason in reasons:
            if isinstance(reason, ast.Constant):
                found[str(reason.value)] = source.name
            else:
                assert ast.unparse(reason) in VARIABLE_REASONS, (
                    f"{source}:{reason.lineno}: write the reason as a constant, so that it can be documented"
                )
    return found


def test_reasons_are_found_in_the_sources() -> None:
    assert {"SpecInvalid", "OutputConflict", "QuarantineExceeded", "EngineVoided"} <= raised_reasons().keys()


def test_every_reason_that_is_raised_is_in_troubleshooting() -> None:
    documented = table_heads(read("docs/troubleshooting.md"))
    dropped_files = {str(outcome): "readers" for outcome in FileOutcome if outcome != FileOutcome.READ}
    missing = {r: where for r, where in (raised_reasons() | dropped_files).items() if r not in documented}
    assert not missing, f"add to docs/troubleshooting.md: {missing}"


def test_troubleshooting_lists_no_reason_that_is_gone() -> None:
    known = raised_reasons().keys() | set(FileOutcome)
    assert table_heads(read("docs/troubleshooting.md")) <= known


@pytest.mark.parametrize(
    ("words", "page"),
    [(Reason, "docs/policy.md"), (FileOutcome, "docs/policy.md"), (Fault, "docs/verify.md")],
    ids=["quarantine reasons", "file outcomes", "faults that verify finds"],
)
def test_every_word_of_the_data_has_a_row(words: type[StrEnum], page: str) -> None:
    missing = {str(word) for word in words} - table_heads(read(page))
    assert not missing, f"add to {page}: {missing}"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_in_the_command_reference(command: str) -> None:
    assert f"## tokjob {command}\n" in read("docs/command-line.md")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_is_documented(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    section = read("docs/command-line.md").split(f"## tokjob {command}\n")[1].split("\n## ")[0]
    fields = read("docs/job-reference.md")
    for action in parser_of(command, monkeypatch)._actions:
        flags = [flag for flag in action.option_strings if flag not in ("-h", "--help")]
        if flags and "." not in flags[0] and not re.search(rf"^\| `{flags[0][2:]}` \|", fields, re.MULTILINE):
            assert all(f"`{flag}" in section for flag in flags), f"{flags} of tokjob {command}"


def parser_of(command: str, monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    """The parser that a command makes, caught when it is about to parse."""
    caught: list[argparse.ArgumentParser] = []

    def catch(parser: argparse.ArgumentParser, *arguments: object) -> argparse.Namespace:
        caught.append(parser)
        raise SystemExit

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", catch)
    with pytest.raises(SystemExit):
        import_module(f"tokenization_worker.cli.{command.replace('-', '_')}_command").main([])
    return caught[0]


def printed_commands() -> Iterator[tuple[str, str]]:
    """(page, command) for every `tokjob` command in a code block, up to a comment, a pipe or the next command."""
    for page in PAGES:
        for block in re.findall(r"^ *```\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            for line in re.findall(r"^ *(?:\$ )?(tokjob [a-z].*)", block.replace("\\\n", " "), re.MULTILINE):
                yield page.name, re.split(r" [&|#>]|;", line)[0].strip()


@pytest.mark.parametrize(("page", "line"), sorted(set(printed_commands())))
def test_every_printed_command_can_be_parsed(page: str, line: str) -> None:
    _, command, *arguments = shlex.split(line)
    with pytest.MonkeyPatch.context() as patch:
        parser = parser_of(command, patch)
    parser.parse_args(arguments)


def test_exit_codes_of_help_and_troubleshooting_agree() -> None:
    help_text = subprocess.run(
        [sys.executable, "-m", "tokenization_worker.cli.main", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for code in (0, 1, 2, 3, 4, 5, 129, 130, 141, 143):
        assert re.search(rf"\b{code}\b", help_text.partition("exit codes:")[2]), code
        assert re.search(rf"^\|[ \d,]*\b{code}\b", read("docs/troubleshooting.md"), re.MULTILINE), code


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(CHECKOUT).as_posix())
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in set(anchors(linked.read_text(encoding="utf-8"))), f"{page.name}: {target}"


def test_the_map_of_the_modules_names_what_is_there() -> None:
    named = re.findall(r"^\| (`[^|]+) \|", read("CONTRIBUTING.md").partition("## Where things live")[2], re.MULTILINE)
    places = re.findall(r"`([^`]+)`", " ".join(named))
    assert "worker/tokenization_worker/api/" in places
    assert [place for place in places if not (CHECKOUT / place).exists()] == []
    packages = [CHECKOUT / root for root in ("worker/tokenization_worker", "operator/tokenization_operator")]
    rooms = [room for package in packages for room in package.iterdir() if (room / "__init__.py").exists()]
    assert [room.name for room in rooms if f"{room.relative_to(CHECKOUT).as_posix()}/" not in places] == []


def anchors(text: str) -> Iterator[str]:
    """The anchors that a renderer gives to headings."""
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def test_every_page_is_linked_from_the_readme_or_another_page() -> None:
    linked = set()
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                linked.add((page.parent / target).resolve())
    orphans = [page for page in DOCS.rglob("*.md") if page.resolve() not in linked]
    assert not orphans


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(CHECKOUT).as_posix())
def test_manifests_in_the_documentation_are_valid(page: Path) -> None:
    from tokenization_worker.api.job import TokenizationJob
    from tokenization_worker.api.training.manifest import TokenizerTraining

    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        if block.startswith("apiVersion"):
            (TokenizerTraining if "kind: TokenizerTraining" in block else TokenizationJob).from_yaml(block)


def test_the_python_api_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    lines = [json.dumps({"text": "a line of text, " * 20}) for _ in range(500)]
    (tmp_path / "data" / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    flags = ["--source", "data", "--tokenizer", "gpt2", "--output", "out/first", "--print-manifest"]
    with (tmp_path / "job.yaml").open("wb") as manifest:
        subprocess.run([TOKJOB, "run", *flags], cwd=tmp_path, stdout=manifest, check=True)
    blocks = re.findall(r"```python\n(.*?)```", read("docs/python-api.md"), re.DOTALL)
    # The parts of the page on training that need nothing more, on the rows that were just made.
    more = re.findall(r"```python\n(.*?)```", read("docs/training.md"), re.DOTALL)
    blocks += [block for block in more if "torch" not in block and "grain" not in block]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
