"""`tokjob explain`: explain the state of a job on Kubernetes, and what to do next."""

from __future__ import annotations

import dataclasses
import shutil
from typing import TYPE_CHECKING

import orjson

from tokenization_worker.cli.escapes import say
from tokenization_worker.cli.explain.report import make_report
from tokenization_worker.cli.explain.screen import draw
from tokenization_worker.cli.parser import CommandParser
from tokenization_worker.errors import SpecError
from tokenization_worker.messages.extras import install_command

if TYPE_CHECKING:
    from tokenization_worker.cli.explain.report import Observed

_WIDTH = 120
_LEAST_WIDTH, _MOST_WIDTH = 60, 160
_ALL_EVENTS = 1000
_PREFIXES = ("tkj", "tokenizationjob", "tokenizationjobs", "tokenizationjobs.tokenization.dev")


def main(arguments: list[str]) -> int:
    """Show what is known of a job, on one screen."""
    parser = CommandParser(
        prog="tokjob explain",
        description="Explain the state of a job on Kubernetes: its status, events, Pods with what blocks them, last "
        "log lines, and the next step. Writes nothing. Also as kubectl tokjob explain.",
    )
    parser.add_argument("job", metavar="JOB", help="the name of a TokenizationJob")
    parser.add_argument("-n", "--namespace", help="its namespace (default: that of the context)")
    parser.add_argument("--context", help="the context of the kubeconfig to use")
    parser.add_argument("--kubeconfig", metavar="FILE", help="the kubeconfig to use (default: as kubectl)")
    parser.add_argument("--json", action="store_true", help="the same as JSON, with all events")
    options = parser.parse_args(arguments)
    kind, slash, name = options.job.partition("/")
    job = name if slash and kind.lower() in _PREFIXES else options.job
    observed = _read(job, options.namespace, options.kubeconfig, options.context)
    if options.json:
        report = make_report(observed, _ALL_EVENTS)
        print(orjson.dumps(dataclasses.asdict(report), option=orjson.OPT_UTC_Z).decode())
        return 0
    width = shutil.get_terminal_size((_WIDTH, 0)).columns
    for line in draw(make_report(observed), min(_MOST_WIDTH, max(_LEAST_WIDTH, width))):
        say(line)
    return 0


def _read(job: str, namespace: str | None, kubeconfig: str | None, context: str | None) -> Observed:
    try:
        from tokenization_worker.cli.explain.cluster import connect, read_job
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "kubernetes":
            raise
        raise SpecError(
            "SpecInvalid",
            "tokjob explain: the Kubernetes client is not installed here",
            next_step=install_command("kube"),
        ) from error
    cluster = connect(kubeconfig, context)
    return read_job(cluster, namespace or cluster.namespace, job)
