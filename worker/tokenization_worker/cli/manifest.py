"""From arguments to a job: a manifest, flags that stand for its fields, or both.

Flags are made from the manifest's models, so every field has one (`--output.shards.tokens`), and a run that
began with flags can be written down as a file (`--print-manifest`). `--set FIELD=VALUE` is the same for
scripts. A flag outranks the file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tokenization_worker.api.job import JobSpec, TokenizationJob
from tokenization_worker.api.load import parse_value, parse_yaml, validate_manifest
from tokenization_worker.api.walk import is_list_type, iter_fields, strip_annotation
from tokenization_worker.cli.parser import CommandParser
from tokenization_worker.errors import SpecError

SHORT = {"--source": "source.uris", "--tokenizer": "tokenizer.name", "--output": "output.uri"}
_FIELD_PREFIX = "field:"


class JobParser(CommandParser):
    """A parser for commands that take a job. Usage is one line."""

    def __init__(self, prog: str, description: str) -> None:
        usage = f"{prog} [MANIFEST] [--FIELD VALUE ...] [OPTIONS]"
        super().__init__(prog, usage, description, allow_abbrev=False)
        add_job_arguments(self)


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    """The manifest and one flag for every field of it."""
    parser.add_argument("manifest", nargs="?", help="a TokenizationJob in YAML; - reads standard input")
    short = parser.add_argument_group("without a manifest (or to change one)")
    short.add_argument("--source", action="append", metavar="URI", help="files, folders or globs; may be repeated")
    short.add_argument("--tokenizer", metavar="NAME|FILE", help="an encoding, a model name, or a tokenizer file")
    short.add_argument("--output", metavar="URI", help="where the dataset goes")
    short.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="set any field of spec")
    short.add_argument("--print-manifest", action="store_true", help="print the manifest this stands for, and stop")
    fields = parser.add_argument_group("fields of the manifest (lists and numbers as in YAML)")
    for path, summary in _flags():
        fields.add_argument(f"--{path}", dest=_FIELD_PREFIX + path, metavar="VALUE", help=summary.replace("%", "%%"))


def _flags() -> Iterator[tuple[str, str]]:
    """(path, first sentence) of every field of spec that holds a value; items of lists have no flag."""
    for field in iter_fields(JobSpec):
        if not field.in_list and (field.block is None or is_list_type(field.info.annotation)):
            yield field.path, (field.info.description or "").split(". ")[0].rstrip(".")


def job_from_arguments(arguments: argparse.Namespace) -> TokenizationJob:
    """The job that the arguments stand for; raises `SpecError`."""
    changes = _changes(arguments)
    if arguments.manifest is None and not changes:
        raise SpecError(
            "SpecInvalid",
            "no job given",
            next_step="name a manifest (tokjob run job.yaml), or give --source, --tokenizer and --output",
        )
    if not changes and arguments.manifest != "-":
        return TokenizationJob.from_yaml(Path(arguments.manifest))
    origin = arguments.manifest or "the command line"
    return validate_manifest(TokenizationJob, _merged(arguments, changes), origin=origin)


def print_manifest(job: TokenizationJob) -> str:
    """The job as YAML, without what is left to defaults."""
    manifest = job.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    return yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True)


def _changes(arguments: argparse.Namespace) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for flag, path in SHORT.items():
        value = getattr(arguments, flag.removeprefix("--"))
        if value is not None:
            changes[path] = value
    tokenizer = changes.get("tokenizer.name")
    if tokenizer is not None and ("/" in tokenizer or Path(tokenizer).is_file()):
        changes["tokenizer.uri"] = changes.pop("tokenizer.name")
    for name, value in vars(arguments).items():
        if name.startswith(_FIELD_PREFIX) and value is not None:
            path = name.removeprefix(_FIELD_PREFIX)
            changes[path] = _value(path, value, f"--{path} {value}")
    for assignment in arguments.set:
        path, equals, value = assignment.partition("=")
        if not equals:
            raise SpecError(
                "SpecInvalid",
                f"--set {assignment}: expected FIELD=VALUE, such as rangeBytes=64Mi",
                next_step="write = between the field's path and its value",
            )
        path = path.strip().removeprefix("spec.")
        changes[path] = _value(path, value, f"--set {assignment}")
    return changes


def _value(path: str, text: str, origin: str) -> Any:
    """A flag's value: text where the field holds text (`{split}` is no mapping there), else YAML; null is absent."""
    if path in _text_fields() and text != "null":
        return text
    return parse_value(text, origin=origin)


@cache
def _text_fields() -> frozenset[str]:
    return frozenset(field.path for field in iter_fields(JobSpec) if strip_annotation(field.info.annotation) is str)


def _merged(arguments: argparse.Namespace, changes: dict[str, Any]) -> dict[str, Any]:
    if arguments.manifest is None:
        manifest: dict[str, Any] = {
            "apiVersion": "tokenization.dev/v1alpha1",
            "kind": "TokenizationJob",
            "metadata": {"name": "laptop"},
            "spec": {},
        }
    else:
        manifest = _load(arguments.manifest)
    spec = manifest.setdefault("spec", {})
    for path, value in changes.items():
        block = spec
        *parents, last = path.split(".")
        for parent in parents:
            block = block.setdefault(parent, {})
            if not isinstance(block, dict):
                raise SpecError("SpecInvalid", f"spec.{path}: {parent} is not a block of fields")
        if path == "tokenizer.uri":
            block.pop("name", None)
        if path == "tokenizer.name":
            block.pop("uri", None)
        block[last] = value
    return manifest


def _load(manifest: str) -> dict[str, Any]:
    if manifest == "-":
        return parse_yaml(sys.stdin.read(), origin="standard input")
    try:
        text = Path(manifest).read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(
            "SpecNotFound", f"{manifest}: {error.strerror}", next_step="give the path of a manifest (YAML)"
        ) from error
    return parse_yaml(text, origin=manifest)
