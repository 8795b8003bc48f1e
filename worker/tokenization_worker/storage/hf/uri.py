"""Parses names of places on the Hugging Face Hub. Pure: no I/O, no client.

    hf://datasets/org/name[@revision][/path]    in a dataset
    hf:org/name[@revision]                      the tokenizer.json of a model

A revision is a branch, a tag or a commit; a slash in it is written %2F, but in `refs/pr/1` and `refs/convert/parquet`.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from tokenization_worker.errors import SpecError

ENDPOINT_VARIABLE = "HF_ENDPOINT"
"""Of the environment: the address of the Hub, or of a server that answers as it does."""

_DATASET = re.compile(
    r"(?P<root>hf://datasets/(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/(?:convert|pr)/[^/]+|[^/]+))?)"
    r"(?:/(?P<path>.*))?",
    re.ASCII | re.DOTALL,
)
_MODEL = re.compile(r"hf:(?P<repository>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>refs/pr/[^/]+|[^/]+))?", re.ASCII)
_ID = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_COMMIT = re.compile("[0-9a-f]{40}")


class HfUri(NamedTuple):
    """`root` is the URI up to the revision, as it was written; `path` is below it, maybe empty. `kind`: dataset or
    model."""

    root: str
    repository: str
    revision: str
    path: str
    kind: str = "dataset"

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit, which nobody can move."""
        return _COMMIT.fullmatch(self.revision) is not None


def hf_identity(uri: str, commit: str) -> tuple[str, str, str]:
    """What a file is, by whatever revision it is named: `@main`, none, a tag or the commit itself."""
    place = split_hf_uri(uri)
    return place.repository.casefold(), commit, place.path


def split_hf_uri(uri: str) -> HfUri:
    """The parts of an `hf://` URI; raises `SpecError`."""
    found = _DATASET.fullmatch(uri)
    if found is None or "*" in found["root"]:
        raise SpecError(
            "SpecInvalid",
            f"{uri!r} is not a path in a dataset on the Hub; tokjob does not read models and spaces",
            next_step="write hf://datasets/org/name/path or hf://datasets/org/name@revision/path; the path may hold "
            "wildcards; write a slash in a revision as %2F",
        )
    return HfUri(found["root"], found["repository"], unquote(found["revision"] or "main"), found["path"] or "")


def is_model_name(name: str) -> bool:
    """Whether a tokenizer's name means a model on the Hub."""
    return name.startswith("hf:")


def looks_like_repository(name: str) -> bool:
    """Whether a name may be that of a repository on the Hub: `org/name`."""
    return _ID.fullmatch(name) is not None and not name.startswith(".")


def split_model_name(name: str) -> HfUri:
    """The place of a model's tokenizer.json; raises `SpecError`."""
    found = _MODEL.fullmatch(name)
    if found is None:
        raise SpecError(
            "SpecInvalid",
            f"tokenizer.name: {name!r} is not a model on the Hub",
            next_step="write hf:org/name, or hf:org/name@revision with a branch, a tag or a commit (a slash in it is "
            "written %2F)",
        )
    revision = unquote(found["revision"] or "main")
    return HfUri(name, found["repository"], revision, "tokenizer.json", kind="model")
