"""`tokjob blend`: the weights of a dataset's shards by group, ready for a trainer's command line."""

from __future__ import annotations

import argparse
import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence

import orjson

from tokenization_worker.cli.escapes import printable, say
from tokenization_worker.cli.parser import CommandParser
from tokenization_worker.inspect.blend import BlendPart, Trainer, make_blend
from tokenization_worker.inspect.uris import absolute_uri


def main(arguments: list[str]) -> int:
    """Print a blend: a weight and a prefix for each shard."""
    parser = CommandParser(
        prog="tokjob blend",
        description="Print the blend of a dataset: a `weight prefix` pair for each shard, quoted for a shell.",
    )
    parser.add_argument("output", help="output.uri of a finished job")
    parser.add_argument(
        "--for",
        dest="trainer",
        choices=[trainer.value for trainer in Trainer],
        required=True,
        help="who reads it: megatron takes the pairs behind --data-path",
    )
    parser.add_argument("--split", metavar="NAME", help="the split (default: the last one)")
    parser.add_argument(
        "--weight",
        metavar="GROUP=NUMBER",
        type=_read_weight,
        action="append",
        default=[],
        help="the weight of a group, in place of its tokens in percent of all; 0 leaves it out. Weights are relative "
        "to each other: give one to every group to set exact shares",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(arguments)
    weights = dict(options.weight)
    if len(weights) < len(options.weight):
        parser.error("--weight is given twice for a group: leave one of them out")
    parts = make_blend(absolute_uri(options.output), options.split, weights)
    _tell_relative(parts, weights)
    for part in parts:
        if options.json:
            print(orjson.dumps(dataclasses.asdict(part)).decode())
        else:
            say(f"{part.weight:.9g} {printable(shlex.quote(part.prefix))}")
    return 0


def _tell_relative(parts: Sequence[BlendPart], weights: Mapping[str, float]) -> None:
    """Say which share a group gets whose weight stands beside those of groups without one."""
    shares: dict[str, float] = {}
    for part in parts:
        shares[part.group] = shares.get(part.group, 0.0) + part.weight
    given = [group for group in shares if group in weights]
    others = [group for group in shares if group not in weights]
    if not given or not others:
        return
    found = ", ".join(f"{group} is {shares[group]:.1%} of the blend" for group in given)
    say(
        f"{found}: weights are relative to each other, and those of {', '.join(others)} are their tokens in percent of "
        "all; to set exact shares, give --weight for every group",
        error=True,
    )


def _read_weight(text: str) -> tuple[str, float]:
    """`code=3` as a group and a number."""
    group, _, number = text.partition("=")
    try:
        weight = float(number)
    except ValueError:
        weight = math.nan
    if not group or not 0 <= weight < math.inf:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a group and a number that is not negative: code=3")
    return group, weight
