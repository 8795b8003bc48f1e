"""Resolves a manifest to the frozen values that the worker uses.

Pure but for the current directory, which makes local paths absolute: like any command, `data/*.jsonl`
means the folder that the command was started in. `~` is the home folder. Nothing is opened or listed
here; `~name` without such a user is looked for, because it would become a folder of that name.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from tokenization_worker.api.data import (
    DataSpec,
    DelimiterPosition,
    GroupSpec,
    OutputSpec,
    SequenceSpec,
    ShuffleSpec,
    SourceSpec,
    SplitSpec,
    TokenizerSpec,
)
from tokenization_worker.api.groups import Group
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.output import RERUN_PLACEHOLDER, Output
from tokenization_worker.api.source import Source
from tokenization_worker.api.tokenizer import Tokenizer
from tokenization_worker.api.types.quantities import Limit, parse_percentage, parse_quantity
from tokenization_worker.errors import SpecError
from tokenization_worker.host.current_folder import needing_current_folder


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What a run may lose, and how large its ranges are; none of it influences the output."""

    max_quarantined: Limit
    max_corrupt_files: Limit
    range_bytes: int


def resolve_data(job: TokenizationJob) -> DataSpec:
    """Return the data fields of `job` with defaults, numbers and absolute paths filled in."""
    output = job.spec.output
    return DataSpec(
        source=resolve_source(job.spec.source),
        max_document_bytes=parse_quantity(job.spec.documents.max_bytes),
        tokenizer=_resolve_tokenizer(job.spec.tokenizer),
        output=OutputSpec(
            uri=resolve_output_uri(output.uri, job.spec.rerun_token),
            formats=tuple(output.formats),
            dtype=output.dtype,
            shard_tokens=_resolve_shard_tokens(output),
            path=output.path,
            splits=tuple(
                SplitSpec(s.name, s.shards, None if s.share is None else parse_percentage(s.share))
                for s in output.splits
            ),
            sequence=_resolve_sequence(output),
            shuffle=_resolve_shuffle(output),
        ),
        rerun_token=job.spec.rerun_token,
    )


def resolve_source(source: Source) -> SourceSpec:
    """Return the block `source` with absolute paths and shares as fractions."""
    return SourceSpec(
        uris=_resolve_uris(source.uris or [uri for group in source.groups or () for uri in group.uris]),
        format=source.format,
        text_field=source.text_field,
        id_field=source.id_field,
        document_separator=source.document_separator,
        groups=tuple(_resolve_group(group) for group in source.groups or ()),
    )


def _resolve_shuffle(output: Output) -> ShuffleSpec | None:
    if output.shuffle is None:
        return None
    return ShuffleSpec(output.shuffle.seed, output.shuffle.unit_of(has_rows=output.sequence is not None))


def _resolve_tokenizer(tokenizer: Tokenizer) -> TokenizerSpec:
    delimiter = tokenizer.delimiter
    token, position = delimiter.token, delimiter.position or DelimiterPosition.BEFORE
    if delimiter.begin is not None:
        token = delimiter.begin
    elif delimiter.end is not None:
        token, position = delimiter.end, DelimiterPosition.AFTER
    return TokenizerSpec(
        name=tokenizer.name,
        uri=None if tokenizer.uri is None else resolve_uri(tokenizer.uri),
        pattern=tokenizer.pattern,
        special_tokens=tuple(sorted((tokenizer.special_tokens or {}).items())),
        delimiter_token=token,
        delimiter_position=position,
        end_token=None if delimiter.begin is None else delimiter.end,
    )


def _resolve_uris(uris: list[str]) -> tuple[str, ...]:
    return tuple(resolve_uri(uri) for uri in uris)


def _resolve_group(group: Group) -> GroupSpec:
    share = None if group.tokens is not None else parse_percentage(group.share or "100%")
    return GroupSpec(group.name, _resolve_uris(group.uris), share, group.tokens)


def _resolve_sequence(output: Output) -> SequenceSpec | None:
    sequence = output.sequence
    if sequence is None:
        return None
    pad_token, pad_id = (None, None) if sequence.pad is None else (sequence.pad.token, sequence.pad.id)
    return SequenceSpec(
        sequence.length,
        sequence.packing,
        sequence.scope,
        pad_token,
        pad_id,
        max_documents=sequence.max_documents,
        long_documents=sequence.long_documents,
    )


def _resolve_shard_tokens(output: Output) -> int:
    """Of a full shard: whole rows where there are rows."""
    if output.sequence is None:
        return output.shards.tokens
    length = output.sequence.length
    return length * (output.shards.sequences or max(1, output.shards.tokens // length))


def resolve_limits(job: TokenizationJob) -> RunLimits:
    """Return the limits of `job` as numbers."""
    return RunLimits(
        max_quarantined=Limit.parse(job.spec.max_quarantined),
        max_corrupt_files=Limit.parse(job.spec.max_corrupt_files),
        range_bytes=parse_quantity(job.spec.range_bytes),
    )


def resolve_uri(uri: str) -> str:
    """Return `uri` in the one form in which it stands in keys and plans, so that no file has two names.

    A local path is absolute and plain: no `file://`, no doubled slashes, `.` or `..`. In a repository on the Hub empty
    components and `.` are dropped: Git has none. A key in a bucket is any text and stays: `a//b` is not `a/b`.
    """
    if uri.startswith("hf://"):
        components = uri.removeprefix("hf://").split("/")
        return "hf://" + "/".join(name for name in components[:-1] if name not in ("", ".")) + f"/{components[-1]}"
    if "://" in uri and not uri.startswith("file://"):
        return uri
    _require_user(uri.removeprefix("file://"))
    with needing_current_folder():
        path = os.path.abspath(os.path.expanduser(uri.removeprefix("file://")))  # noqa: PTH100, PTH111  "/a/*/../b" stays lexical
    return "/" + path.lstrip("/")  # POSIX lets two slashes at the start be, and no system here makes use of that


def _require_user(path: str) -> None:
    """Raise for `~nobody/x`, which would be a folder called `~nobody` here, unless there is one."""
    first = path.partition("/")[0]
    if path.startswith("~") and os.path.expanduser(first) == first and not os.path.lexists(first):  # noqa: PTH111
        raise SpecError(
            "SpecInvalid",
            f"{path}: there is no user {first[1:]!r} whose folder {first} could be",
            next_step=f"check the name; for a file or folder that is called {first} write ./{path}",
        )


def resolve_output_uri(uri: str, rerun_token: str | None) -> str:
    """Return `output.uri` with the token filled in and without a trailing slash."""
    return resolve_uri(uri.replace(RERUN_PLACEHOLDER, rerun_token or "")).rstrip("/") or "/"
