"""One run, timed from the inside: with processes of this machine, on Ray, or on Ray with tasks in place of actors.

The clock runs from `run_job` to its end, after the cluster was connected to; prints one JSON object. Tasks are not what
the product uses: they are here to be compared with it. Ray chooses the process of each.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

import ray

from tokenization_worker import Options, TokenizationJob, run_job
from tokenization_worker.engine.executor import UnderWay
from tokenization_worker.engine.ray.connection import connect
from tokenization_worker.engine.ray.executor import RayCluster
from tokenization_worker.engine.task import Done, Task, Worker, WorkerState
from tokenization_worker.engine.task_progress import ignore_advance
from tokenization_worker.events import Receipt
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.planning.prepare import Prepared

KINDS = ("local", "ray", "tasks")

_STATE = WorkerState("task")
"""Of this process, whichever tasks Ray gives it."""


def _run(task: Task) -> Receipt:
    return task.run(_STATE, ignore_advance)


class TaskExecutor:
    """As many tasks at once as there are slots; nothing is done about those that are lost."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._run = ray.remote(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")(_run)
        self._running: dict[Future[Receipt], tuple[Task, Any]] = {}

    def blocked_reason(self) -> str:
        return ""

    def under_way(self) -> UnderWay:
        return UnderWay(self.slots, self.slots)

    def submit(self, task: Task, worker: Worker | None = None) -> None:
        del worker
        reference = self._run.remote(task)
        self._running[reference.future()] = (task, reference)

    def wait(self, timeout_s: float) -> list[Done]:
        ended, _ = wait(self._running, timeout=timeout_s, return_when=FIRST_COMPLETED)
        return [Done(self._running.pop(future)[0], future.result()) for future in ended]

    def close(self, *, grace_s: float = 0.0) -> list[Done]:
        del grace_s
        return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("kind", choices=KINDS)
    for name in ("--address", "--source", "--tokenizer", "--output"):
        parser.add_argument(name, required=True)
    parser.add_argument("--processes", type=int, required=True)
    options = parser.parse_args()
    job = TokenizationJob.from_object(
        {
            "apiVersion": "tokenization.dev/v1alpha1",
            "kind": "TokenizationJob",
            "metadata": {"name": "overhead"},
            "spec": {
                "source": {"uris": [options.source]},
                "tokenizer": {"name": options.tokenizer},
                "output": {"uri": options.output},
            },
        }
    )
    if options.kind == "local":
        started = time.perf_counter()
        run_job(job, options=Options(processes=options.processes))
        print(json.dumps({"connect_s": 0.0, "run_s": time.perf_counter() - started}))
        return 0
    began = time.perf_counter()
    if options.kind == "tasks":
        connect(options.address, options.processes)

        def tasks(prepared: Prepared, context: RunContext) -> TaskExecutor:
            del prepared, context
            return TaskExecutor(options.processes)

        started = time.perf_counter()
        run_job(job, executor=tasks, options=Options(processes=options.processes))
    else:
        with RayCluster(options.address, options.processes) as cluster:
            slots = cluster.count_slots()
            if slots != options.processes:
                print(f"the cluster has room for {slots} tasks, expected {options.processes}", file=sys.stderr)
                return 1
            started = time.perf_counter()
            run_job(job, executor=cluster.start, options=Options(count_processes=cluster.count_slots))
    print(json.dumps({"connect_s": started - began, "run_s": time.perf_counter() - started}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
