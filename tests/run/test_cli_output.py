"""Outputs that cannot take what a command prints: full, closed, or of another encoding."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from support.command_line import MANIFEST, TIMEOUT_S, Bench, Result, byte_shards, shards_of
from support.forked_commands import Forked
from support.runs import TOKJOB

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def shell(bench: Bench, line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`line` with `tokjob` in it, in the bench's folder."""
    return subprocess.run(
        ["sh", "-c", line.replace("tokjob", str(TOKJOB))],
        cwd=bench.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, **environment},
    )


def into_full(bench: Bench, command: str, *full: str) -> Result:
    """`tokjob`, whose standard output or errors are a disk without room; of the others the errors are kept."""
    with (
        Path("/dev/full").open("wb") as disk,
        Path(os.devnull).open("r+b") as nothing,
        tempfile.TemporaryFile() as errors,
    ):
        files = {"stdin": nothing, "stdout": nothing, "stderr": errors} | dict.fromkeys(full, disk)
        started = Forked(
            [TOKJOB, *command.split()], cwd=bench.folder, **{name: file.fileno() for name, file in files.items()}
        )
        code = started.wait(TIMEOUT_S)
        errors.seek(0)
        return Result(code, "", errors.read().decode())


@pytest.mark.parametrize("command", ["run job.yaml", "run job.yaml --json", "plan job.yaml", "status out", "crd"])
def test_full_output_is_a_message_and_the_same_command_goes_on(command: str, bench: Bench) -> None:
    result = into_full(bench, command, "stdout")
    kept = "; finished work is kept" if command.startswith("run") else ""
    assert result.code == 5
    assert result.err.splitlines() == [
        "tokjob: cannot write standard output: No space left on device",
        f"  next: start the same command again with its output elsewhere{kept}",
    ]
    assert bench.tokjob("run", "job.yaml").code == 0
    assert shards_of(bench.output) == byte_shards(bench.documents)


@pytest.mark.parametrize(
    ("command", "full", "code"),
    [
        ("status out", ("stdout", "stderr"), 5),
        ("run job.yaml", ("stdout", "stderr"), 5),
        ("run job.yaml", ("stderr",), 0),
        ("run missing.yaml", ("stderr",), 2),
        ("run job.yaml --bogus", ("stderr",), 2),
        ("bogus", ("stderr",), 2),
        ("validate bad.yaml", ("stderr",), 2),
        ("run bad-source.yaml", ("stderr",), 4),
    ],
)
def test_exit_code_is_the_same_where_messages_cannot_be_written(
    command: str, full: tuple[str, ...], code: int, bench: Bench
) -> None:
    bench.write("bad.yaml", "kind: nothing")
    bench.write("bad/a.jsonl", '{"text": "a"}\n[1]\n')
    bench.write("bad-source.yaml", MANIFEST.replace("[src]", "[bad]"))
    assert into_full(bench, command, *full).code == code


@pytest.mark.sampled(3)
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", ">&- --json"])
def test_closed_output_is_no_reason_to_stop(closed: str, bench: Bench) -> None:
    result = shell(bench, f"tokjob run job.yaml {closed}")
    assert (result.returncode, result.stderr) == (0, "")
    assert shards_of(bench.output) == byte_shards(bench.documents)
    assert shell(bench, f"tokjob status out {closed}").returncode == 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", ["run job.yaml", "status größe", "show größe", "run nß.yaml"])
def test_encoding_that_lacks_a_letter_is_no_reason_to_stop(command: str, bench: Bench) -> None:
    bench.write("job.yaml", MANIFEST.replace("uri: out", "uri: größe"))
    assert shell(bench, "tokjob run job.yaml", PYTHONIOENCODING="ascii").returncode == 0
    result = shell(bench, f"tokjob {command}", PYTHONIOENCODING="ascii")
    assert result.returncode == (2 if "nß" in command else 0)
    assert "\\xdf" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
