"""Break the guarantees of the product on purpose, one at a time, and see that tests notice.

    python scripts/mutants.py                    # those of modules and tests that HEAD~1 and the work since touch
    python scripts/mutants.py --since main       # those that the work since the merge base with `main` touches
    python scripts/mutants.py --all
    python scripts/mutants.py clean: redact      # those whose name contains one of the words
    python scripts/mutants.py --check            # run nothing: only check that each one applies

`tests/mutants/PACKAGE/ROOM.toml` holds the mutants of a room. Each one names a module, a text that occurs exactly once
in it, the text that replaces it, and the tests that must fail then: files below tests/, and words for pytest's `-k`.
A run first checks that every mutant still applies. A mutant gets its own copy of the package: nothing of
the checkout is written to, except that pytest keeps compiled tests. They run in a fork of this process, which has
imported the libraries, but nothing of the product.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.util
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
SOURCES = {"worker": "tokenization_worker", "operator": "tokenization_operator"}  # each root with its package

TIMEOUT_S = 300
"""A mutant that makes a test wait for ever has been noticed, too."""

IMPORTED = """
    aiohttp boto3 google.cloud.storage hypothesis.strategies kopf kubernetes.client numpy opentelemetry.trace orjson
    prometheus_client pyarrow.parquet pydantic requests rich.console tiktoken_ext.openai_public yaml
"""
"""Libraries that tests import, and that start no thread and read no environment then. A start of pytest costs 1.5 to
2 s of a core without them."""


@dataclass(frozen=True)
class Mutant:
    name: str
    module: str
    old: str
    new: str
    tests: list[str]
    words: str = ""  # for `-k`

    def mutate(self, source: str) -> str:
        return source.replace(self.old, self.new)


class Checkout:
    """The modules, test files and mutants of a working tree."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules: dict[str, Path] = {}
        for source, package in SOURCES.items():
            for path in (root / source / package).rglob("*.py"):
                parts = path.relative_to(root / source).with_suffix("").parts
                self.modules[".".join(parts).removesuffix(".__init__")] = path
        self.tests = {path.name: path for path in (root / "tests").rglob("test_*.py")}
        files = sorted((root / "tests" / "mutants").rglob("*.toml"))
        self.files = {path: read_mutants(path.read_text(encoding="utf-8")) for path in files}
        self.mutants = [mutant for mutants in self.files.values() for mutant in mutants]

    def problems(self) -> Iterator[str]:
        """Say of each mutant that does not apply why, and what to change."""
        names = Counter(mutant.name for mutant in self.mutants)
        yield from (f"{name}: {count} mutants have this name" for name, count in names.items() if count > 1)
        texts = {name: path.read_text(encoding="utf-8") for name, path in self.modules.items()}
        for path, mutants in self.files.items():
            for mutant in mutants:
                for problem in self._problems_of(mutant, path, texts):
                    yield f"{path.relative_to(self.root)}: {mutant.name}: {problem}"

    def _problems_of(self, mutant: Mutant, file: Path, texts: dict[str, str]) -> Iterator[str]:
        text = texts.get(mutant.module, "")
        if text.count(mutant.old) != 1:
            there = f"occurs {text.count(mutant.old)} times in" if text else "has lost its module"
            found = [name for name, other in texts.items() if name != mutant.module and other.count(mutant.old) == 1]
            move = f'; it moved: write module = "{found[0]}"' if len(found) == 1 else ""
            yield f"its text {there} {mutant.module}{move}"
            return
        try:
            ast.parse(mutant.mutate(text))
        except SyntaxError as error:
            yield f"{mutant.module} is no longer Python with it: line {error.lineno}: {error.msg}"
        package, room = mutant.module.split(".")[:2]
        if (SOURCES.get(file.parent.name), file.stem) != (package, room):
            root = next(root for root, name in SOURCES.items() if name == package)
            yield f"{mutant.module} belongs to another room: move the mutant to tests/mutants/{root}/{room}.toml"
        for test in set(mutant.tests) - set(self.tests):
            yield f"no file below tests/ is called {test}"

    def touched(self, since: str) -> list[Mutant]:
        """Mutants whose module, test or own text differs from the merge base with a revision of git."""
        base = self._git("merge-base", since, "HEAD").strip()
        new = self._git("ls-files", "--others", "--exclude-standard")
        changed = {self.root / name for name in (self._git("diff", "--name-only", base) + new).splitlines()}
        before: list[Mutant] = []
        for path in changed & set(self.files):
            name = str(path.relative_to(self.root))
            if self._git("ls-tree", base, name):
                before += read_mutants(self._git("show", f"{base}:{name}"))
        return [
            mutant
            for path, mutants in self.files.items()
            for mutant in mutants
            if {self.modules[mutant.module], *(self.tests[test] for test in mutant.tests)} & changed
            or (path in changed and mutant not in before)
        ]

    def _git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.root), *arguments]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def read_mutants(text: str) -> list[Mutant]:
    return [Mutant(**table) for table in tomllib.loads(text)["mutant"]]


class Trial:
    """The tests of a mutant, running in a fork against a copy of its package."""

    def __init__(self, checkout: Checkout, mutant: Mutant) -> None:
        self.mutant = mutant
        self.started = time.monotonic()
        self.folder = Path(tempfile.mkdtemp(prefix="mutant-"))
        package = mutant.module.partition(".")[0]
        origin = checkout.modules[package].parent
        copy = self.folder / package
        shutil.copytree(origin, copy)  # with compiled modules, which are valid for copies of the same age
        module = copy / checkout.modules[mutant.module].relative_to(origin)
        Path(importlib.util.cache_from_source(str(module))).unlink(missing_ok=True)
        module.write_text(mutant.mutate(module.read_text(encoding="utf-8")), encoding="utf-8")
        words = ["-k", mutant.words] if mutant.words else []
        tests = [str(checkout.tests[test]) for test in mutant.tests]
        self.arguments = ["-x", "-q", "--no-header", "--tb=line", *words, *tests]
        paths = [self.folder, *(checkout.root / source for source in SOURCES)]
        self.pid = os.fork()
        if not self.pid:
            os.setsid()
            os.chdir(checkout.root)
            sys.exit(self._run([str(path) for path in paths]))  # so that what tests registered with atexit runs

    def _run(self, paths: list[str]) -> int:
        output = os.open(self.folder / "output", os.O_WRONLY | os.O_CREAT)
        for number, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
            os.dup2(file, number)
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        sys.dont_write_bytecode = False  # to rewrite a module's assertions takes up to 0.3 s
        sys.path[:1] = paths
        sys.argv = ["pytest", *self.arguments]
        sys.modules["__main__"] = importlib.import_module("pytest.__main__")  # as if pytest were started
        return pytest.main(self.arguments)

    def poll(self) -> tuple[bool, str] | None:
        """Whether the tests noticed, and how; None while they run. Tests that could not begin are no notice."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            return self._judge(os.waitstatus_to_exitcode(status))
        if time.monotonic() - self.started > TIMEOUT_S:
            return True, f"no end in {TIMEOUT_S} s"
        return None

    def _judge(self, code: int) -> tuple[bool, str]:
        said = (self.folder / "output").read_text(encoding="utf-8", errors="replace").splitlines() or [""]
        failed = [line for line in said if line.startswith("FAILED")]
        if code == 0:
            return False, "SURVIVED: all its tests pass"
        if code == 1 and failed:
            return True, failed[-1].removeprefix("FAILED ")
        return False, f"pytest exit {code}: {said[-1]}"  # also where what a test needs could not be had

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        shutil.rmtree(self.folder)


def import_libraries() -> None:
    """Let pytest load its plugins, so that it knows them in forks, and import what tests import."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["--collect-only", "-c", os.devnull, "--rootdir", folder, folder])
    for name in IMPORTED.split():
        importlib.import_module(name)


def run(checkout: Checkout, mutants: Sequence[Mutant], jobs: int) -> int:
    """Run the tests of mutants, `jobs` at a time; how many were noticed."""
    parent, left, running, noticed = os.getpid(), list(mutants[::-1]), [], 0
    try:
        while left or running:
            while left and len(running) < jobs:
                running.append(Trial(checkout, left.pop()))
            for trial in list(running):
                verdict = trial.poll()
                if verdict is not None:
                    running.remove(trial)
                    trial.end()
                    noticed += verdict[0]
                    line = f"{time.monotonic() - trial.started:5.1f} s  {trial.mutant.name:52}  {verdict[1][:140]}"
                    print("red " if verdict[0] else "BAD ", line, flush=True)
            time.sleep(0.02)
    finally:
        if os.getpid() == parent:
            for trial in running:
                trial.end()
    return noticed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    for flag in ("--all", "--check"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--since", default="HEAD~1", metavar="REVISION")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    checkout = Checkout(CHECKOUT)
    problems = list(checkout.problems())
    if problems or options.check:
        print("\n".join([*problems, f"{len(checkout.mutants)} mutants, {len(problems)} problems"]))
        return bool(problems)
    chosen = checkout.mutants if options.all or options.names else checkout.touched(options.since)
    chosen = [mutant for mutant in chosen if not options.names or any(word in mutant.name for word in options.names)]
    started = time.monotonic()
    import_libraries()
    noticed = run(checkout, chosen, options.jobs)
    print(f"{noticed} of {len(chosen)} mutants turn tests red, in {time.monotonic() - started:.0f} s")
    return 1 if noticed < len(chosen) or (options.names and not chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
