"""The addresses of source files: what one may be, in words and in CEL.

Which schemes a machine can read is the storage's business: `hf://` and `s3://` are valid here even where the client for
them is not installed.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import StringConstraints

from tokenization_worker.api.types.model import Rule

MEANT_AS_URI = r"://|^(gs|s3|hf|file)(:|//)"
"""Also `gs:/bucket` and `gs//bucket`, which would be folders here."""

_URI = r"^((gs|s3|hf)://[^/]|file:///)"

READABLE_URI = Rule(
    "write gs://bucket/path, s3://bucket/path, hf://datasets/org/name/path, file:///path or, on a laptop, a plain path"
    "; download what lies at other addresses first",
    cel=f"!self.matches(r'{MEANT_AS_URI}') || self.matches(r'{_URI}')",
    holds=lambda uri: not re.search(MEANT_AS_URI, uri) or bool(re.match(_URI, uri)),
)
NO_NUL = Rule(
    "leave out the NUL character: no path and no URI has one",
    cel=None,
    holds=lambda uri: "\0" not in uri,
)

SourceUri = Annotated[str, StringConstraints(min_length=1, max_length=2048), READABLE_URI, NO_NUL]
