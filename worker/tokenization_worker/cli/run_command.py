"""`tokjob run`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import ExitStack
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING

from tokenization_worker.api.job import fields_for_operator
from tokenization_worker.cli.escapes import say
from tokenization_worker.cli.manifest import JobParser, job_from_arguments, print_manifest
from tokenization_worker.cli.numbers import read_count
from tokenization_worker.cli.progress import Display, make_display
from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.errors import SpecError
from tokenization_worker.events import Warned, Watcher
from tokenization_worker.host.open_files import files_needed, require_open_files
from tokenization_worker.messages.extras import install_command
from tokenization_worker.processes import default_processes
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.stop import StopToken, current_stop

if TYPE_CHECKING:
    from tokenization_worker.engine.ray.executor import RayCluster


def main(arguments: list[str]) -> int:
    """Run a job here; 0 when its index is written."""
    parser = JobParser(
        "tokjob run",
        "Run a job here, to its index. Interrupted or failed? The same command resumes; there is no --continue.",
    )
    how = parser.add_argument_group("how to run")
    add_executor(how)
    how.add_argument("--processes", type=read_count, help="worker processes (default: what cores and memory allow)")
    how.add_argument(
        "--engine",
        choices=["auto", "reference", "fastokens"],
        default="auto",
        help="auto: the accelerated engine, if it is proven identical and saves time",
    )
    how.add_argument("--json", action="store_true", help="one JSON object a line instead of a display")
    options = parser.parse_args(arguments)
    job = job_from_arguments(options)
    if options.print_manifest:
        print(print_manifest(job), end="")
        return 0
    uses_ray = asks_for_ray(options)
    if not uses_ray:  # now, and not when a plan is written already
        require_open_files(files_needed(options.processes or default_processes(), has_store=False))
    display = make_display(as_json=options.json)
    stop = StopOnSignal(display)
    ignored = fields_for_operator(job.spec)
    try:
        if ignored:
            them = "them" if len(ignored) > 1 else "it"
            verb = "are" if len(ignored) > 1 else "is"
            display(Warned(f"{', '.join(ignored)} {verb} for the operator: tokjob run ignores {them}"))
        with ExitStack() as stack:
            how_to_run = Options(processes=options.processes, engine=options.engine)
            executor = None
            if uses_ray:
                cluster = stack.enter_context(ray_cluster(options.ray_address, options.processes, display))
                how_to_run = replace(how_to_run, count_processes=cluster.count_slots)
                executor = cluster.start
            finished = run_job(job, options=how_to_run, executor=executor, on_progress=display, should_stop=stop)
        display(finished)
    except (Stopped, KeyboardInterrupt):
        if not stop.exit_code:
            raise
        display.close()
        print("tokjob: stopped; finished work is kept. The same command continues from here", file=sys.stderr)
        return stop.exit_code
    finally:
        display.close()
    return 0


def add_executor(group: argparse._ArgumentGroup) -> None:
    """The flags that say where tasks run."""
    group.add_argument(
        "--executor",
        choices=["local", "ray"],
        help="local (the default): processes on this machine; ray: the Ray cluster that is there, or a new one here",
    )
    group.add_argument(
        "--ray-address",
        metavar="HOST:PORT",
        help="the Ray cluster to use (implies --executor ray); auto: the one that this machine is part of, "
        "or else a new one here; local: a new one here",
    )


def asks_for_ray(options: argparse.Namespace) -> bool:
    """Whether tasks run on a Ray cluster; raises `SpecError` for flags that contradict each other."""
    if options.executor == "local" and options.ray_address is not None:
        raise SpecError(
            "SpecInvalid",
            "--executor local and --ray-address contradict each other",
            next_step="leave one of them out; --ray-address alone means --executor ray",
        )
    return options.executor == "ray" or options.ray_address is not None


def ray_cluster(address: str | None, processes: int | None, watch: Watcher) -> RayCluster:
    # Ray prints what it knows of lost workers to standard output, which is the display's; events tell it there.
    os.environ["RAY_DEDUP_LOGS_SKIP_REGEX"] = "."
    try:
        from tokenization_worker.engine.ray.connection import require_reachable
        from tokenization_worker.engine.ray.executor import RayCluster
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise SpecError(
            "SpecInvalid",
            "--executor ray: Ray is not installed here",
            next_step=install_command("ray"),
        ) from error
    if address is not None:
        require_reachable(address)  # now, and not when a plan is written already
    return RayCluster(address, processes, watch)


class StopOnSignal:
    """Remembers that the user wants to stop, and says so; a second Ctrl-C ends at once, and so does the first where a
    store is waited for."""

    def __init__(self, display: Display, under_way: str = "the ranges under way") -> None:
        self.exit_code = 0
        self._under_way = under_way
        self._token = current_stop() or StopToken()
        self._display = display
        self._is_announced = False
        self._terminals = [number for number in (1, 2) if os.isatty(number)]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
                signal.signal(number, self._take)

    def _take(self, number: int, frame: FrameType | None) -> None:
        is_second = self.exit_code != 0
        self.exit_code = self.exit_code or 128 + number
        if number == signal.SIGHUP:  # the terminal is gone, and every write to it would be an error
            nobody = os.open(os.devnull, os.O_WRONLY)
            for terminal in self._terminals:
                os.dup2(nobody, terminal)
            os.close(nobody)
        if self._token.stop() or is_second:  # it may be two minutes until the call ends that the driver is in
            raise KeyboardInterrupt
        if not self._display.is_drawing:  # the signal may have come in the middle of a line of a bar
            self._announce()

    def _announce(self) -> None:
        self._is_announced = True
        say(f"\ntokjob: stopping after {self._under_way}; again to stop at once", error=True)

    def __call__(self) -> bool:
        if self.exit_code and not self._is_announced:
            self._announce()
        return self.exit_code != 0
