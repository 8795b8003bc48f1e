"""`tokjob validate`: manifests only, no I/O on source or output."""

from __future__ import annotations

from pathlib import Path

from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.manifest.load import nearest_kind, validate_manifest
from tokenization_worker.api.manifest.manifest_file import read_manifest_file
from tokenization_worker.api.manifest.yaml_text import parse_yaml
from tokenization_worker.api.training.manifest import TokenizerTraining
from tokenization_worker.cli.escapes import printable, say
from tokenization_worker.cli.parser import CommandParser
from tokenization_worker.errors import SpecError


def main(arguments: list[str]) -> int:
    """Check every manifest; 2 if one is wrong."""
    parser = CommandParser(prog="tokjob validate", description="Check manifests without looking at source or output.")
    parser.add_argument("manifests", nargs="+", help="TokenizationJobs and TokenizerTrainings in YAML")
    options = parser.parse_args(arguments)
    worst = 0
    for manifest in options.manifests:
        try:
            found = _read(Path(manifest))
        except SpecError as error:
            say(f"tokjob: {error}", error=True)
            worst = error.exit_code
        else:
            say(f"{printable(manifest)}: {found.metadata.name} is valid")
    return worst


def _read(path: Path) -> TokenizationJob | TokenizerTraining:
    """The manifest: a training where its kind says so, or nearly."""
    manifest = parse_yaml(read_manifest_file(path), origin=str(path))
    if nearest_kind(manifest) == TokenizerTraining.__name__:
        return validate_manifest(TokenizerTraining, manifest, origin=str(path))
    return validate_manifest(TokenizationJob, manifest, origin=str(path))
