"""Turns YAML into a checked manifest, or into one error that lists every mistake in it.

Which values are valid is decided by the models; `yaml_text` reads the text, `describe` words each mistake.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from tokenization_worker.api.manifest.describe import describe_error
from tokenization_worker.api.manifest.manifest_file import read_manifest_file
from tokenization_worker.api.manifest.yaml_text import check_again, parse_yaml
from tokenization_worker.api.types.model import STORED, Block
from tokenization_worker.errors import SpecError

B = TypeVar("B", bound=Block)

_NEXT_ARGUMENT = "correct the arguments of TokenizationJob.of (every field: tokjob run --help-all)"
COMMAND_LINE = "the command line"
"""The origin of a job without a manifest."""
READERS = {"TokenizationJob": "tokjob run", "TokenizerTraining": "tokjob train"}
"""The command that reads a manifest, by its kind."""
KEYWORDS = "TokenizationJob.of"
"""The origin of a job from a program's keywords."""


def load_manifest(model: type[B], path_or_text: str | Path) -> B:
    """Read one manifest from a file or from text; see `is_text` for how they are told apart.

    Raises SpecError: SpecNotFound for a file that cannot be read, SpecInvalid with every mistake otherwise.
    """
    if not isinstance(path_or_text, str | os.PathLike):
        raise SpecError(
            "SpecInvalid",
            f"from_yaml takes the path of a manifest or its text, found {type(path_or_text).__name__}",
            next_step="give a path or a text; for a dictionary, use TokenizationJob.from_object(...)",
        )
    if isinstance(path_or_text, str) and is_text(path_or_text):
        return validate_manifest(model, parse_yaml(path_or_text, origin="the manifest"), origin="the manifest")
    path = Path(path_or_text)
    text = read_manifest_file(path)
    return validate_manifest(model, parse_yaml(text, origin=str(path)), origin=str(path))


def is_text(path_or_text: str) -> bool:
    """Return whether a string is a manifest and not the path of one: it has a line break, or `: ` in it, or nothing."""
    return "\n" in path_or_text or ": " in path_or_text or not path_or_text.strip()


def nearest_kind(manifest: dict[str, Any]) -> str | None:
    """The kind that people write which a manifest has, or nearly has; None where it is near to none."""
    return next(iter(difflib.get_close_matches(str(manifest.get("kind")), READERS, n=1)), None)


def validate_manifest(model: type[B], manifest: dict[str, Any], *, origin: str, is_stored: bool = False) -> B:
    """Return `manifest` as `model`; SpecError(SpecInvalid) that lists every mistake, one a line, in the
    order found. `is_stored`: the API server has accepted it, perhaps before some rules were there.
    """
    kind = nearest_kind(manifest)
    if kind is not None and model.__name__ in READERS and kind != model.__name__:
        raise SpecError(
            "SpecInvalid",
            f"{origin}: kind: found {manifest['kind']!r}, expected {model.__name__}",
            next_step=f"{READERS[kind]} reads a {kind}",
        )
    try:
        return model.model_validate(manifest, by_alias=True, by_name=False, context=STORED if is_stored else None)
    except ValidationError as error:
        details = error.errors(include_url=False)
        lines = list(dict.fromkeys(describe_error(model, detail) for detail in details))
        mistakes = "1 mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
        message = f"{origin}: {mistakes}" + "".join(f"\n  {line}" for line in lines)
        step = {COMMAND_LINE: f"correct the flag (every field: {model.help_command})", KEYWORDS: _NEXT_ARGUMENT}.get(
            origin, check_again(model.help_command)
        )
        raise SpecError("SpecInvalid", message, next_step=step) from error
