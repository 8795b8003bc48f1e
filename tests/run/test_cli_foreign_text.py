"""What a command prints of files, ids and texts is shown, and never obeyed by a terminal."""

from __future__ import annotations

import ast
import json
import sys
from io import StringIO
from pathlib import Path

import pytest

from support.tokenizer_models import train_byte_level, write_json
from tokenization_worker.cli import escapes
from tokenization_worker.cli.main import main
from tokenization_worker.cli.progress import TerminalDisplay
from tokenization_worker.events import Planned, StartingRay, Warned

OSC = "\x1b]0;owned\x07"
BAD = f"a{OSC}\x1b[2J\u202e.jsonl"
SHOWN = r"a\x1b]0;owned\x07\x1b[2J\u202e.jsonl"


def is_inert(text: str) -> bool:
    return not set(text) & {"\x1b", "\x07", "\u202e", "\r", "\x9b"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*more: str) -> int:
    return main(["run", "--source", "src", "--tokenizer", "bytes", "--output", "out", *more])


def test_show_prints_ids_texts_and_file_names_escaped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {"id": f"id{OSC}", "text": f"one\n\ttwo\x1b[31mred\x9b0m\r{OSC}"}
    (folder / "src" / BAD).write_text(json.dumps(record) + "\n")
    assert run() == 0
    capsys.readouterr()
    assert main(["show", "out"]) == 0
    shown = capsys.readouterr().out
    assert is_inert(shown)
    assert SHOWN in shown
    assert "id\\x1b]0;owned\\x07" in shown
    assert "one\n\ttwo\\x1b[31mred\\x9b0m\\x0d\\x1b]0;owned\\x07\n" in shown


def test_every_command_is_inert(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With names of a source, an output and a tokenizer that a terminal would obey."""
    (folder / "src" / BAD).write_text('{"text": "some text"}\n')
    (folder / "src" / f"b{OSC}.txt").write_text("a rare kind of file")
    output, tokenizer = f"out{OSC}", f"tokenizer{OSC}.json"
    write_json(folder / tokenizer, train_byte_level([{"content": "<|endoftext|>"}]))
    job = ["--source", f"src/{BAD}", "--source", f"src/b{OSC}.txt", "--tokenizer", tokenizer, "--output", output]
    commands = [["plan", *job], ["run", *job], ["status", output], ["show", output]]
    for command in [*commands, ["plan", *job], ["run", *job], ["clean", output], ["verify", output]]:
        if command[0] == "verify":
            next((folder / output).glob("**/*.npy")).unlink()
        code = main(command)
        told = capsys.readouterr()
        assert code == {"clean": 3, "verify": 4}.get(command[0], 0), told.err
        assert is_inert(told.out + told.err), command
        assert r"\x1b]0;owned\x07" in told.out + told.err, command


def test_the_bars_of_a_terminal_are_inert(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", StringIO())
    display = TerminalDisplay()
    display(Planned(1, 1, 1, 1, 1.0, f"t{OSC}", "reference", is_accelerated=False, adopted=False, is_checked=False))
    display(Warned(OSC))
    display(StartingRay(f"host{OSC}:1"))
    told = sys.stdout.getvalue()  # type: ignore[attr-defined]
    assert is_inert(told)
    assert told.count(r"\x1b]0;owned\x07") == 3


def test_words_are_printed_in_one_place() -> None:
    """A `print` of a command's own shows nothing but constants, or data in JSON or YAML."""
    for path in Path(escapes.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "print" and path.name != "escapes.py":
                for argument in node.args:
                    made = isinstance(argument, ast.Call) and ast.unparse(argument.func)
                    is_data = made and made.endswith(("decode", "print_manifest", "safe_dump_all", "join"))
                    assert is_data or isinstance(argument, ast.Constant), f"{path.name}:{node.lineno}: use `say`"


def test_an_error_that_names_a_file_is_inert(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "src" / BAD).write_bytes(b"\xff\xfe{\x00")
    assert run() == 4
    told = capsys.readouterr()
    assert is_inert(told.out + told.err)
    assert SHOWN in told.err
    assert "\n  next: " in told.err


def test_excerpts_of_unusable_documents_are_inert(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "src" / BAD).write_text('{"text": "x"}\n' + f"{OSC} no JSON\n" * 3)
    assert run("--maxQuarantined", "1") == 4
    told = capsys.readouterr()
    assert is_inert(told.out + told.err)
    assert "QuarantineExceeded" in told.err


def test_warnings_of_run_are_inert(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "src" / "b.jsonl").write_text('{"text": "x"}\n')
    (folder / "src" / BAD).write_bytes(b"")
    assert run() == 0
    told = capsys.readouterr()
    assert is_inert(told.out + told.err)
    assert SHOWN in told.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", f"--no{OSC}"],
        [f"r{OSC}"],
        ["validate", f"no{OSC}.yaml"],
        ["status", f"no{OSC}"],
        ["run", f"no{OSC}.yaml"],
    ],
    ids=["flag", "command", "validate", "status", "manifest"],
)
def test_what_was_typed_is_repeated_inert(
    arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(arguments)
    except SystemExit as left:
        code = int(left.code or 0)
    told = capsys.readouterr()
    assert code in (0, 2)
    assert is_inert(told.out + told.err)
    assert r"\x1b]0;owned\x07" in told.out + told.err
