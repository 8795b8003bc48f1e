"""`tokjob train`."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from dataclasses import replace

from tokenization_worker.api.manifest.keywords import job_manifest
from tokenization_worker.api.training.manifest import TokenizerTraining, TrainingSpec
from tokenization_worker.cli.manifest import (
    ManifestParser,
    add_fields,
    add_setting,
    changes_of,
    print_manifest,
    read_arguments,
)
from tokenization_worker.cli.numbers import read_count, read_number
from tokenization_worker.cli.run_command import StopOnSignal, add_executor, asks_for_ray, ray_cluster
from tokenization_worker.cli.train_progress import make_train_display
from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.errors import SpecError
from tokenization_worker.messages.extras import install_command

_SHORT = {"source": "source.uris", "vocab-size": "tokenizer.vocabSize", "output": "output.uri"}


def main(arguments: list[str]) -> int:
    """Train a tokenizer here; 0 when its index is written."""
    parser = _make_parser()
    options = parser.parse_args(arguments)
    training = _training_of(options)
    if options.print_manifest:
        print(print_manifest(training), end="")
        return 0
    try:
        from tokenization_worker.run.training.train import TrainOptions, train_tokenizer
    except ModuleNotFoundError as error:
        if error.name not in ("numba", "tokenizers"):
            raise
        raise SpecError(
            "SpecInvalid", f"tokjob train: {error.name} is not installed here", next_step=install_command("train")
        ) from error
    uses_ray = asks_for_ray(options)
    display = make_train_display(as_json=options.json)
    stop = StopOnSignal(display, "the work under way")
    try:
        how = TrainOptions(processes=options.processes, until_counts=options.until is not None)
        with ExitStack() as stack:
            executor = None
            if uses_ray:
                cluster = stack.enter_context(ray_cluster(options.ray_address, options.processes, display))
                how = replace(how, count_processes=cluster.count_slots)
                executor = cluster.start
            finished = train_tokenizer(training, options=how, executor=executor, on_progress=display, should_stop=stop)
        display(finished)
    except (Stopped, KeyboardInterrupt):
        if not stop.exit_code:
            raise
        display.close()
        print("tokjob: stopped; what is counted is kept. The same command continues from here", file=sys.stderr)
        return stop.exit_code
    finally:
        display.close()
    return 0


def _make_parser() -> ManifestParser:
    parser = ManifestParser(
        "tokjob train",
        "Train a byte-pair tokenizer on a corpus, and write its tokenizer.json. Interrupted or failed? The same "
        "command resumes.",
    )
    parser.add_argument("manifest", nargs="?", help="a TokenizerTraining in YAML; - reads standard input")
    short = parser.add_argument_group("without a manifest (or to change one)")
    short.add_argument(
        "--source", action="append", nargs="+", metavar="URI", help="files, folders or globs; may be repeated"
    )
    short.add_argument(
        "--vocab-size",
        type=_read_sizes,
        metavar="N[,N...]",
        help="how many tokens the tokenizer has, special ones included; several: a tokenizer of each size",
    )
    short.add_argument("--output", metavar="URI", help="the folder for tokenizer.json")
    add_setting(short)
    add_fields(parser.add_argument_group("fields of the manifest (lists and numbers as in YAML)"), TrainingSpec)
    how = parser.add_argument_group("how to train")
    add_executor(how)
    how.add_argument("--processes", type=read_count, help="worker processes (default: what cores and memory allow)")
    how.add_argument(
        "--until", choices=["counts"], help="end when the pieces are counted; a later start trains from the counts"
    )
    how.add_argument("--json", action="store_true", help="one JSON object a line instead of a display")
    return parser


def _training_of(options: argparse.Namespace) -> TokenizerTraining:
    """The training that the arguments stand for; raises `SpecError`."""
    nothing = SpecError(
        "SpecInvalid",
        "no training given",
        next_step="name a manifest (tokjob train training.yaml), or give --source, --vocab-size and --output",
    )
    changes, empty = changes_of(options, TrainingSpec, _SHORT), job_manifest("training", {}, "TokenizerTraining")
    return read_arguments(TokenizerTraining, options.manifest, empty, changes, _SHORT, nothing)


def _read_sizes(text: str) -> int | list[int]:
    sizes = [read_number(each) for each in text.split(",")]
    return sizes[0] if len(sizes) == 1 else sizes
