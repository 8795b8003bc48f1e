"""`tokjob crd`: the CustomResourceDefinitions."""

from __future__ import annotations

from pathlib import Path

from tokenization_worker.api.schema.crd import generate_crds
from tokenization_worker.cli.escapes import printable, say
from tokenization_worker.cli.parser import CommandParser
from tokenization_worker.errors import SpecError


def main(arguments: list[str]) -> int:
    """Print the CRDs, or write them below a folder."""
    parser = CommandParser(prog="tokjob crd", description="Print the CustomResourceDefinitions.")
    parser.add_argument("--write", metavar="FOLDER", type=Path, help="write one file per kind there instead")
    options = parser.parse_args(arguments)
    crds = generate_crds()
    if options.write is None:
        print("---\n".join(crds.values()), end="")
        return 0
    try:
        options.write.mkdir(parents=True, exist_ok=True)
        for name, text in crds.items():
            (options.write / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SpecError(
            "OutputNotWritable",
            f"cannot write {error.filename or options.write}: {error.strerror}",
            next_step="give --write a folder that can be written",
        ) from error
    for name in crds:
        say(printable(str(options.write / name)))
    return 0
