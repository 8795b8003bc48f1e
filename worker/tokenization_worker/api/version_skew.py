"""The rules between operators and worker images of neighbouring minor versions that share a checkpoint.

The writer (the operator) does not know which version a worker image has. So a checkpoint carries every field that it
had in version 0.1.0, and a field that came later only where its value is not the one that it was born with: an image
that does not know the field does what it always did. A field that an older worker must not leave aside raises the
`minimumVersion` of its part of the checkpoint.

The reader (the plan Pod, the driver) ignores fields that it does not know, once it has compared the minimum version
with its own. It also computes runKey from the data fields that it knows: an unknown field that changes the dataset
changes runKey, so no worker writes another dataset than the job asks for. docs/decisions/0026 has the reasons.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from tokenization_worker.api.checkpoint import AttemptSpec, RunSpec, TokenizationCheckpoint
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import KEY_VERSION, run_key
from tokenization_worker.errors import SpecError

_MINIMUM = "minimumVersion"
_PARTS = ("run", "attempt")
_RELEASE = re.compile(r"\d+(\.\d+)*")


@dataclass(frozen=True, slots=True)
class LaterField:
    """A field of a checkpoint that version 0.1.0 did not have.

    `born`: its value in a job that does not set it: what workers did before they knew the field. `minimum_version`: the
    first worker version that knows it; None where an older worker may leave the field aside.
    """

    born: object
    minimum_version: str | None


LATER_FIELDS: Mapping[str, LaterField] = {
    "run.source.groups": LaterField(born=None, minimum_version="0.3.0"),
    "run.tokenizer.delimiter.begin": LaterField(born=None, minimum_version="0.3.0"),
    "run.tokenizer.delimiter.end": LaterField(born=None, minimum_version="0.3.0"),
    "run.output.sequence": LaterField(born=None, minimum_version="0.3.0"),
    "run.output.shards.sequences": LaterField(born=None, minimum_version="0.3.0"),
    "attempt.tokenizerFingerprint": LaterField(born=None, minimum_version="0.3.0"),
    "run.output.shuffle": LaterField(born=None, minimum_version="0.3.0"),
}
"""By path below `spec`, with `[]` after a list: `run.output.splits[].seed`, `attempt.retries`. A block stands for the
fields in it. A data field stands in `keys.FROZEN_DEFAULTS`, too, with the same value, unless that is None."""


def write_part(
    name: str, part: RunSpec | AttemptSpec, later: Mapping[str, LaterField] = LATER_FIELDS
) -> dict[str, Any]:
    """Return `spec.run` or `spec.attempt` as an operator writes it for images of any version."""
    written: dict[str, Any] = part.model_dump(mode="json", by_alias=True, exclude_none=True)
    needed = [
        field.minimum_version
        for path, field in later.items()
        if path.startswith(f"{name}.") and _write_field(written, path.split(".")[1:], field.born)
        if field.minimum_version is not None
    ]
    return written | ({_MINIMUM: max(needed, key=_numbers)} if needed else {})


def _write_field(written: dict[str, Any], path: list[str], born: object) -> bool:
    """Leave a field out where it has the value it was born with; return whether it stays anywhere."""
    *parents, name = path
    stays = False
    for owner in _blocks_at(written, parents):
        if name in owner and owner[name] == born:
            del owner[name]
        stays = stays or name in owner
    return stays


def _blocks_at(block: Any, path: list[str]) -> Iterator[dict[str, Any]]:
    if not path:
        yield block
        return
    found = block.get(path[0].removesuffix("[]"))
    for each in (found or ()) if path[0].endswith("[]") else [found]:
        if isinstance(each, dict):
            yield from _blocks_at(each, path[1:])


def read_checkpoint(found: dict[str, Any], version: str) -> TokenizationCheckpoint:
    """Return what a worker of `version` is to do; unknown fields are ignored.

    Raises `SpecError`: WorkerTooOld where the run needs a newer worker, SpecInvalid for what no version reads.
    """
    where = _where(found)
    minimum = _minimum_version(found)
    if minimum is not None and _numbers(version) < _numbers(minimum):
        words = f"{where} needs a worker of tokenization {minimum} or newer, and this image has {version}"
        raise _too_old(words, minimum)
    try:
        checkpoint = TokenizationCheckpoint.model_validate(found, extra="ignore", by_alias=True, by_name=False)
    except ValidationError as error:
        raise SpecError(
            "SpecInvalid",
            f"{where} is not what tokenization {version} reads: {error}",
            next_step="use a worker image of the operator's version, or of the minor version before it",
        ) from error
    job = checkpoint.to_job()
    run = checkpoint.spec.run
    if run.key_version > KEY_VERSION:
        raise _too_old(
            f"{where} has a runKey of version {run.key_version}, and tokenization {version} knows version {KEY_VERSION}"
        )
    if run.key_version == KEY_VERSION and _means_the_same_everywhere(job) and run_key(job) != run.run_key:
        raise _too_old(
            f"{where} asks for a dataset that tokenization {version} cannot describe: its runKey is {run.run_key}, and "
            f"the fields that this image knows give {run_key(job)}{_unknown_words(found)}"
        )
    return checkpoint


def attempt_number(found: dict[str, Any]) -> int:
    """Return which attempt a checkpoint of any version is about; 0 is the plan."""
    attempt = found.get("spec", {}).get("attempt") or {}
    number = attempt.get("number", 0)
    return number if isinstance(number, int) else 0


def _minimum_version(found: dict[str, Any]) -> str | None:
    spec = found.get("spec") or {}
    parts = [spec.get(name) or {} for name in _PARTS]
    named = [str(part[_MINIMUM]) for part in parts if part.get(_MINIMUM)]
    return max(named, key=_numbers, default=None)


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version's release; a build of 0.3.0 that is not released yet counts as 0.3.0."""
    match = _RELEASE.match(version)
    numbers = [int(number) for number in match[0].split(".")] if match else []
    return tuple((*numbers, 0, 0, 0)[:3])


def _means_the_same_everywhere(job: TokenizationJob) -> bool:
    """Whether no path depends on the folder or the user of the process that computes runKey."""
    spec = job.spec
    grouped = [uri for group in spec.source.groups or () for uri in group.uris]
    tokenizer = [] if spec.tokenizer.uri is None else [spec.tokenizer.uri]
    uris = [*(spec.source.uris or ()), *grouped, spec.output.uri, *tokenizer]
    paths = [uri.removeprefix("file://") for uri in uris]
    return all("://" in path or path.startswith("/") for path in paths)


def _unknown_words(found: dict[str, Any]) -> str:
    try:
        TokenizationCheckpoint.model_validate(found, by_alias=True, by_name=False)
    except ValidationError as error:
        places = [".".join(map(str, each["loc"])) for each in error.errors() if each["type"] == "extra_forbidden"]
        return f". It does not know {', '.join(places)}" if places else ""
    return ""


def _where(found: dict[str, Any]) -> str:
    metadata = found.get("metadata") or {}
    return f"checkpoint {metadata.get('namespace', 'default')}/{metadata.get('name', '')}"


def _too_old(message: str, minimum: str | None = None) -> SpecError:
    image = f"tokenization {minimum} or newer" if minimum else "the operator's version"
    return SpecError(
        "WorkerTooOld",
        message,
        next_step=f"set spec.image of the job to a worker image of {image}, or take spec.image out to use the "
        "operator's own; or take out the fields that this image does not know",
    )
