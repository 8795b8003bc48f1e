"""Run a job until it has done so many ranges and shards, in the folder that this process is in.

    python tests/golden/stopped_run.py job.yaml [--ranges N] [--shards N] [--kill] [--rerun TOKEN]

Prints where the package lies that does it, and at the end how many tasks it did. PYTHONPATH chooses the package, which
may be older or newer than this file: so nothing is used but what it exports, `Progress` of its events, and the name of
`Stopped`. Exit code 0: the run is finished; 75: it was stopped. `--ranges -1`: all of them.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Any

import tokenization_worker
from tokenization_worker import Options, TokenizationJob, run_job

STOPPED = 75


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--ranges", type=int)
    parser.add_argument("--shards", type=int, default=0)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--rerun")
    wanted = parser.parse_args()
    print(tokenization_worker.__file__, flush=True)
    job = TokenizationJob.from_yaml(wanted.manifest)
    if wanted.rerun is not None:
        manifest = job.model_dump(mode="json", by_alias=True, exclude_none=True)
        manifest["spec"]["rerunToken"] = wanted.rerun
        job = TokenizationJob.from_object(manifest)
    is_there, tasks = False, 0

    def watch(event: Any) -> None:
        nonlocal is_there, tasks
        if type(event).__name__ != "Progress":
            return
        tasks += event.receipt is not None
        if wanted.ranges is None:
            return
        ranges = event.ranges if wanted.ranges < 0 else wanted.ranges
        is_there |= event.ranges_done >= ranges and event.shards_done >= wanted.shards
        if is_there and wanted.kill:
            os.kill(os.getpid(), signal.SIGKILL)

    options = Options(processes=1, engine="reference")
    try:
        run_job(job, options=options, on_progress=watch, should_stop=lambda: is_there)
    except Exception as error:
        if type(error).__name__ != "Stopped":
            raise
        return STOPPED
    finally:
        print(tasks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
