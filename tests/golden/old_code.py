"""Let older code finish what this code began, and prove what this code finished.

    PYTHONPATH=tests python -m golden.old_code OLD [NAME ...]

OLD is a checkout of an earlier commit (`git worktree add OLD COMMIT`). Both codes run in this environment: only the
package differs. For each job of `data/` this code makes a whole output, which the older code must prove with its source
and find complete. Then this code leaves an output half done, in each state that `data/` has, and the older code must
finish it without doing a task again. Every file must be as `expected.json` says. Exits with 1 if one differs.

The other direction is `tests/run/test_golden_datasets.py`: this code goes on with outputs of earlier code.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from golden.apart import run_apart, verify_apart
from golden.datasets import DATASETS, Dataset
from golden.make import differing, place_for, stop
from golden.places import DATA, source_of
from golden.prints import is_receipt, prints_of
from support.local_servers import ask_without_proxies


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("old", type=Path)
    parser.add_argument("names", nargs="*")
    wanted = parser.parse_args()
    ask_without_proxies()
    failures = 0
    for dataset in DATASETS:
        if wanted.names and dataset.name not in wanted.names:
            continue
        try:
            found = [f"{how}: {what}" for how, what in compare(dataset, wanted.old.resolve())]
        except RuntimeError as error:  # of a run or a proof; the other jobs say more
            found = [str(error)]
        failures += len(found)
        print("\n".join([f"{dataset.name}: {'different' if found else 'the same'}", *found]), flush=True)
    return 1 if failures else 0


def compare(dataset: Dataset, old: Path) -> list[tuple[str, dict[str, Any]]]:
    """What is not as it was: the files that differ, and after what."""
    case = DATA / dataset.name
    manifest = case / "job.yaml"
    expected = json.loads((case / "expected.json").read_text(encoding="utf-8"))
    differences: list[tuple[str, dict[str, Any]]] = []
    with place_for(dataset) as place:
        place.put_source(source_of(case))
        run_apart(place, manifest, crashes=dataset.crashes)
        whole = place.files()
        differences.append(("made by this code", differing(expected["files"], prints_of(whole))))
        digest = verify_apart(place, old)
        differences.append(("proved by the old code", {} if digest == expected["digest"] else {"digest": digest}))
        run_apart(place, manifest, tree=old)
        differences.append(("complete for the old code", differing(prints_of(whole), prints_of(place.files()))))
        if dataset.stop is not None:
            place.clear()
            stop(dataset, place, manifest)
            before = place.files()
            tasks = run_apart(place, manifest, tree=old)
            missing = [path for path in place.files() if is_receipt(path) and path not in before]
            wrong = {} if tasks == len(missing) else {"tasks": tasks, "receipts that were missing": len(missing)}
            differences.append(("done again by the old code", wrong))
            resumed = {path: value for path, value in (expected["files"] | expected["resumed"]).items() if value}
            differences.append(("finished by the old code", differing(resumed, prints_of(place.files()))))
    return [(how, what) for how, what in differences if what]


if __name__ == "__main__":
    sys.exit(main())
