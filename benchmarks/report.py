"""What a table of results must say to mean anything: date, command, machine, versions. Markdown."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

PACKAGES = ("tokenization", "fastokens", "tiktoken", "backports.zstd", "orjson", "numpy", "pyarrow", "ray")


def heading(title: str) -> str:
    """Title with date, the command, the machine, the versions."""
    return "\n".join(
        [
            f"## {title}, {time.strftime('%Y-%m-%d')}",
            "",
            f"- command: `{describe_command(sys.argv)}`",
            f"- machine: {describe_machine()}",
            f"- versions: {describe_versions()}",
        ]
    )


def describe_command(arguments: Sequence[str]) -> str:
    """The command without the folders of the machine that it ran on."""
    script, *rest = arguments
    words = [f"benchmarks/{Path(script).name}"]
    for word in rest:
        option, equals, value = word.rpartition("=")
        shown = f".../{Path(value).name}" if value.startswith("/") else value
        words.append(option + equals + shown)
    return "python " + shlex.join(words)


def describe_machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{_cpu_model()}, {cores} cores, {memory:.0f} GiB of memory, {platform.system()} {platform.release()}"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def describe_versions() -> str:
    parts = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            parts.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if git.returncode == 0:
        parts.append(f"commit {git.stdout.strip()}")
    return ", ".join(parts)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def note(message: str) -> None:
    """Progress, for people."""
    print(message, file=sys.stderr, flush=True)
