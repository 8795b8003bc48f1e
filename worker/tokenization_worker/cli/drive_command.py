"""`tokjob drive`: the driver of a run on Kubernetes. What it is to do, and how far it is, stands in a checkpoint."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from datetime import UTC, datetime
from importlib import metadata

from tokenization_worker.api.checkpoint import CHECKPOINT_VARIABLE, CheckpointProgress, TokenizationCheckpoint
from tokenization_worker.api.version_skew import attempt_number, read_checkpoint
from tokenization_worker.checkpoint.client import CheckpointClient
from tokenization_worker.checkpoint.reporter import Reporter, failure_report
from tokenization_worker.cli.checkpoint_words import committed_report
from tokenization_worker.cli.kept_log import STOPPED_PATIENCE_S, KeptLog
from tokenization_worker.cli.progress import PlainDisplay
from tokenization_worker.cli.run_command import StopOnSignal, ray_cluster
from tokenization_worker.cli.taken_output import taking_output
from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.errors import SpecError, TokenizationError
from tokenization_worker.events import Event, Warned
from tokenization_worker.output.driver_log import DriverLog
from tokenization_worker.run.run import Options, run_job


def main(arguments: list[str]) -> int:
    """Run what a checkpoint says on the Ray cluster of this Pod, to its index; 0 when that is reported."""
    parser = argparse.ArgumentParser(
        prog="tokjob drive",
        description="Run what a TokenizationCheckpoint says on the Ray cluster of this machine, and report progress "
        "there. The operator starts this; a person uses tokjob run.",
    )
    parser.add_argument(
        "--checkpoint",
        default=os.environ.get(CHECKPOINT_VARIABLE),
        metavar="NAME",
        help=f"the checkpoint, in the namespace of this Pod (default: ${CHECKPOINT_VARIABLE})",
    )
    parser.add_argument("--ray-address", metavar="HOST:PORT", help="the Ray cluster to use")
    options = parser.parse_args(arguments)
    if not options.checkpoint:
        raise SpecError(
            "SpecInvalid", "no --checkpoint given", next_step="use tokjob run; the operator uses this command"
        )
    client = CheckpointClient(options.checkpoint)
    found = client.read()
    number = attempt_number(found)
    try:
        checkpoint = read_checkpoint(found, metadata.version("tokenization"))
    except SpecError as error:  # without a report, the operator would take it for a lost machine and try again
        report = CheckpointProgress(attempt=number, failure=failure_report(error, number))
        client.report_progress(report, is_last=True)
        raise
    log = DriverLog(lambda: datetime.now(UTC))
    with taking_output(log.write):
        return _drive(client, checkpoint, number, options.ray_address, log)


def _drive(
    client: CheckpointClient, checkpoint: TokenizationCheckpoint, number: int, ray_address: str | None, log: DriverLog
) -> int:
    job = checkpoint.to_job()
    kept = KeptLog(log, job, checkpoint.spec.run.number, number)
    display = PlainDisplay()
    stop = StopOnSignal(display)
    earlier = None if checkpoint.status is None else checkpoint.status.progress
    with Reporter(client, number, lambda words: display(Warned(words)), earlier) as reporter:

        def watch(event: Event) -> None:
            kept.watch(event)
            display(event)
            reporter(event)

        try:
            with ray_cluster(ray_address, None, watch) as cluster:
                how = Options(count_processes=cluster.count_slots)
                finished = run_job(job, options=how, executor=cluster.start, on_progress=watch, should_stop=stop)
        except (Stopped, KeyboardInterrupt):
            if not stop.exit_code:
                raise
            print("tokjob: stopped; finished work is kept", file=sys.stderr)
            reporter.name_log(kept.write(STOPPED_PATIENCE_S))
            reporter.leave()
            return stop.exit_code
        except Exception as error:  # reported, and raised again
            log.write(_describe_error(error))
            reporter.name_log(kept.write())
            reporter.fail(error)
            raise
        watch(finished)
        reporter.name_log(kept.write())
        progress = reporter.finish()
    client.commit(committed_report(checkpoint.spec.run, job, finished), progress)
    return 0


def _describe_error(error: Exception) -> str:
    """An error as the command will print it, once this block has ended."""
    return f"tokjob: {error}\n" if isinstance(error, TokenizationError) else traceback.format_exc()
