"""`tokjob report`: what rows of some lengths would hold of a dataset."""

from __future__ import annotations

import argparse
import dataclasses

import orjson

from tokenization_worker.cli.escapes import printable, say
from tokenization_worker.cli.numbers import counted, read_count
from tokenization_worker.cli.parser import CommandParser
from tokenization_worker.inspect.length_report import LengthReport, report_lengths

_LENGTHS = "512,2048,8192"
_LEAST = 2


def main(arguments: list[str]) -> int:
    """Print a table, or JSON."""
    parser = CommandParser(
        prog="tokjob report",
        description="Report how full rows of some lengths would be, and what they would cut, from the lengths of the "
        "documents of a dataset without rows.",
    )
    parser.add_argument("output", help="output.uri of a finished job without output.sequence")
    parser.add_argument(
        "--lengths", type=_read_lengths, default=_LENGTHS, metavar="N,N,...", help=f"tokens of a row ({_LENGTHS})"
    )
    parser.add_argument("--json", action="store_true", help="the numbers as JSON")
    options = parser.parse_args(arguments)
    report = report_lengths(options.output, options.lengths)
    if options.json:
        print(orjson.dumps(_as_json(report)).decode())
        return 0
    say(f"dataset    {printable(report.uri)}")
    say(f"           {counted(report.documents, 'document')}, {report.tokens:,} tokens with their delimiters")
    for line in _table(report):
        say(line)
    return 0


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
