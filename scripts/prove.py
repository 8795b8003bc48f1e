"""Run all proofs that are too long for every change, each once, and print a table of times and results.

    python scripts/prove.py              # all: this takes hours on a slow machine
    python scripts/prove.py chaos e2e    # these

Exits with 1 if a proof failed. A proof that this machine cannot run, such as Pods on a real node without root, is
named NOT PROVED and does not fail the whole.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
CANNOT = 77
"""Exit code of `python -m e2e` on a machine that cannot have a node."""


@dataclass(frozen=True)
class Proof:
    """`programs`: which it needs from Debian's packages of the same name."""

    name: str
    command: tuple[str, ...]
    programs: tuple[str, ...] = ()


PROOFS = (
    Proof("test-all", ("make", "test-all")),
    Proof("test-peers", ("make", "test-peers")),
    Proof("test-testbed", ("make", "test-testbed"), ("prometheus",)),
    Proof("mutants", ("make", "mutants-all")),
    Proof("chaos", ("make", "chaos", "KILLS=30", "RAY_RUNS=9", "FAULTS=100")),
    Proof("parquet-bytes", ("make", "parquet-bytes")),
    Proof("e2e", (sys.executable, "-m", "e2e", "-m", "e2e and core"), ("buildah", "debootstrap", "runc")),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(proof.name for proof in PROOFS))
    names = parser.parse_args().names
    if unknown := set(names) - {proof.name for proof in PROOFS}:
        parser.error(f"there is no proof called {', '.join(sorted(unknown))}")
    rows = []
    for proof in PROOFS:
        if not names or proof.name in names:
            began = time.monotonic()
            result = run(proof)
            rows.append((proof.name, f"{time.monotonic() - began:.0f} s", result))
    print("\n| proof | time | result |\n|---|---|---|")
    for row in rows:
        print("|", " | ".join(row), "|")
    return int(any(result.startswith("FAILED") for _, _, result in rows))


def run(proof: Proof) -> str:
    """What became of it."""
    print(f"\n=== {proof.name}: {' '.join(proof.command)}", flush=True)
    install(proof.programs)
    paths = os.pathsep.join(filter(None, (str(CHECKOUT / "tests"), os.environ.get("PYTHONPATH"))))
    environment = os.environ | ({} if proof.command[0] == "make" else {"PYTHONPATH": paths})
    code = subprocess.run(proof.command, cwd=CHECKOUT, env=environment, check=False).returncode
    if code == CANNOT:
        return "NOT PROVED: this machine cannot have it, see above"
    return f"FAILED with exit code {code}" if code else "passed"


def install(programs: tuple[str, ...]) -> None:
    """Install Debian packages that are missing, where this is possible; the proof itself reports what it lacks."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for words in (["update"], ["install", "--yes", "--no-install-recommends", *missing]):
            if subprocess.run(["apt-get", "-qq", *words], env=environment, check=False).returncode:
                print(f"apt-get {words[0]} failed; {', '.join(missing)} may be missing", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
