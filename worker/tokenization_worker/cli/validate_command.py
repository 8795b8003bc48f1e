"""`tokjob validate`: manifests only, no I/O on source or output."""

from __future__ import annotations

from pathlib import Path

from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.cli.escapes import printable, say
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
            say(f"tokjob: {error}", error=True)
            worst = error.exit_code
        else:
            say(f"{printable(manifest)}: {job.metadata.name} is valid")
    return worst
