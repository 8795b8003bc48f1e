"""`tokjob report`: what rows of some lengths would hold of a dataset; how a trained tokenizer does on held-out text."""

from __future__ import annotations

import argparse
import dataclasses

import orjson

from tokenization_worker.cli.escapes import printable, say
from tokenization_worker.cli.numbers import counted, read_count
from tokenization_worker.cli.parser import CommandParser
from tokenization_worker.cli.training_report import report_lines
from tokenization_worker.dataset.dataset import open_dataset
from tokenization_worker.errors import SpecError
from tokenization_worker.inspect.length_report import LengthReport, report_lengths
from tokenization_worker.inspect.training_report import holds_training, report_training
from tokenization_worker.inspect.uris import absolute_uri

_LENGTHS = (512, 2048, 8192)
_LEAST = 2


def main(arguments: list[str]) -> int:
    """Print a table, or JSON."""
    options = _make_parser().parse_args(arguments)
    if holds_training(options.output):
        if options.lengths is not None:
            raise _belongs_to("a dataset", "--lengths", f"{options.output} holds the training of a tokenizer")
        _report_training(options)
        return 0
    if options.tokenizer:
        uri = open_dataset(absolute_uri(options.output)).uri  # raises where none is there
        raise _belongs_to("a training", "--tokenizer", f"{uri} holds a dataset")
    report = report_lengths(options.output, options.lengths or _LENGTHS)
    if options.json:
        print(orjson.dumps(_as_json(report)).decode())
        return 0
    say(f"dataset    {printable(report.uri)}")
    say(f"           {counted(report.documents, 'document')}, {report.tokens:,} tokens with their delimiters")
    for line in _table(report):
        say(line)
    return 0


def _make_parser() -> CommandParser:
    parser = CommandParser(
        prog="tokjob report",
        description="Of a training: show again how its tokenizers do on the held-out documents, by group and script, "
        "and other tokenizers beside them. Of a dataset without rows: report how full rows of some lengths would be, "
        "and what they would cut, from the lengths of its documents.",
    )
    parser.add_argument(
        "output", help="output.uri of a finished training, or of a finished job without output.sequence"
    )
    parser.add_argument(
        "--tokenizer",
        action="append",
        default=[],
        metavar="NAME|FILE",
        help="of a training: also measure this tokenizer, a name or file as for tokjob run; may be repeated",
    )
    parser.add_argument(
        "--lengths",
        type=_read_lengths,
        metavar="N,N,...",
        help=f"of a dataset: tokens of a row ({','.join(map(str, _LENGTHS))})",
    )
    parser.add_argument("--json", action="store_true", help="the numbers as JSON")
    return parser


def _belongs_to(owner: str, flag: str, found: str) -> SpecError:
    """The error for a flag of the report on another kind of output than `found`."""
    return SpecError(
        "SpecInvalid",
        f"tokjob report: {flag} is for the report of {owner}; {found}",
        next_step=f"leave {flag} out, or give the output.uri of {owner}",
    )


def _report_training(options: argparse.Namespace) -> None:
    report = report_training(options.output, options.tokenizer)
    if options.json:
        print(orjson.dumps(report.fields()).decode())
        return
    say(f"training   {printable(absolute_uri(options.output))}")
    for line in report_lines(report):
        say(line)


def _as_json(report: LengthReport) -> dict[str, object]:
    rows = [{**dataclasses.asdict(each), "utilization": each.utilization} for each in report.rows]
    return {**dataclasses.asdict(report), "rows": rows}


def _table(report: LengthReport) -> list[str]:
    lines = [["length", "packing", "rows", "full", "tokens dropped", "documents cut"]]
    for each in report.rows:
        dropped, cut = (
            f"{number:,} ({number / max(1, total):.1%})" if number else "0"
            for number, total in ((each.dropped, report.tokens), (each.cut, report.documents))
        )
        lines.append([f"{each.length:,}", each.packing, f"{each.rows:,}", f"{each.utilization:.1%}", dropped, cut])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in lines]


def _read_lengths(text: str) -> list[int]:
    lengths = [read_count(each) for each in text.split(",")]
    if min(lengths) < _LEAST:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected lengths of at least {_LEAST}: 512,2048")
    return lengths
