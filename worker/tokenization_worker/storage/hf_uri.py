"""Places in datasets on the Hugging Face Hub, by name. Pure: no I/O, no client.

    hf://datasets/org/name[@revision][/path]

A revision is a branch, a tag or a commit; a slash in it is written %2F, but in `refs/pr/1` and `refs/convert/parquet`.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from tokenization_worker.errors import SpecError

_DATASET = re.compile(
    r"(?P<root>hf://datasets/(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/(?:convert|pr)/[^/]+|[^/]+))?)"
    r"(?:/(?P<path>.*))?",
    re.ASCII | re.DOTALL,
)
_COMMIT = re.compile("[0-9a-f]{40}")


class HfUri(NamedTuple):
    """`root` is the URI up to the revision, as it was written; `path` is below it, maybe empty."""

    root: str
    repository: str
    revision: str
    path: str

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit, which nobody can move."""
        return _COMMIT.fullmatch(self.revision) is not None


def split_hf_uri(uri: str) -> HfUri:
    """The parts of an `hf://` URI; raises `SpecError`."""
    found = _DATASET.fullmatch(uri)
    if found is None or "*" in found["root"]:
        raise SpecError(
            "SpecInvalid",
            f"{uri!r} is no place in a dataset on the Hub; models and spaces are not read",
            next_step="write hf://datasets/org/name/path or hf://datasets/org/name@revision/path; wildcards may stand "
            "in the path, and a slash in a revision is written %2F",
        )
    return HfUri(found["root"], found["repository"], unquote(found["revision"] or "main"), found["path"] or "")
