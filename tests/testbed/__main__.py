"""Start a cluster for a person, or stop it, or build all that tests need: `python -m testbed up|down|build`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from testbed.cluster import Testbed, stop_testbed
from testbed.programs import (
    Unavailable,
    find_argo_agent,
    find_helm,
    find_helm_unittest,
    find_judges,
    find_kustomize_controller,
    find_programs,
)
from testbed.shared import CRDS

FOLDER = Path(tempfile.gettempdir()) / "tokenization-testbed"


def main() -> int:
    parser = argparse.ArgumentParser(prog="testbed", description=__doc__)
    parser.add_argument("action", choices=["up", "down", "build"])
    parser.add_argument("--core", action="store_true", help="build only what `make test-core` needs")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="its files (%(default)s)")
    options = parser.parse_args()
    if options.action == "down":
        stop_testbed(options.folder)
        return 0
    try:
        programs = find_programs()
        if options.action == "build":
            find_helm()
        if options.action == "build" and not options.core:
            find_helm_unittest()
            find_judges()
            find_kustomize_controller()
            find_argo_agent()
    except Unavailable as error:
        print(f"the test bed cannot be had: {error}", file=sys.stderr)
        return 1
    if options.action == "up":
        bed = Testbed(options.folder, programs)
        if bed.processes.are_there:
            print(f"one runs already in {options.folder}: make cluster-down", file=sys.stderr)
            return 1
        bed.up(sorted(CRDS.glob("*.yaml")))
        print(f"export KUBECONFIG={bed.kubeconfig} PATH={bed.commands}:$PATH")
    return 0


if __name__ == "__main__":
    sys.exit(main())
