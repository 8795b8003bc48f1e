"""`tokjob validate`: manifests only, no I/O on source or output."""

from __future__ import annotations

import sys
from pathlib import Path

from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.cli.parser import CommandParser
from tokenization_worker.errors import SpecError


def main(arguments: list[str]) -> int:
    """Check every manifest; 2 if one is wrong."""
    parser = CommandParser(prog="tokjob validate", description="Check manifests without looking at source or output.")
    parser.add_argument("manifests", nargs="+", help="TokenizationJobs in YAML")
    options = parser.parse_args(arguments)
    worst = 0
    for manifest in options.manifests:
        try:
            job = TokenizationJob.from_yaml(Path(manifest))
        except SpecError as error:
            print(f"tokjob: {error}", file=sys.stderr)
            worst = error.exit_code
        else:
            print(f"{manifest}: {job.metadata.name} is valid")
    return worst
