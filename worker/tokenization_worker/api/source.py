"""The blocks `source` and `documents`: where the text is and which of it is usable.

Owns their fields, documentation and rules.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.api.groups import Groups
from tokenization_worker.api.types.fields import Quantity, Text
from tokenization_worker.api.types.model import Rule, SpecBlock
from tokenization_worker.api.uris import SourceUri

_DOTTED = r"^[^.]+(\.[^.]+)*$"
DOTTED_PATH = Rule(
    'write a field name, or a dotted path that descends, such as "doc.text"',
    cel=f"self.matches(r'{_DOTTED}')",
    holds=lambda path: bool(re.fullmatch(_DOTTED, path)),
)

FieldPath = Annotated[str, StringConstraints(min_length=1, max_length=256), DOTTED_PATH]


class Source(SpecBlock):
    """The text: where it is, and the layout of its records."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            'write exactly one of uris, for example ["gs://corpus/fineweb-edu/*.parquet"], and groups',
            cel="has(self.uris) != has(self.groups)",
            holds=lambda s: (s.uris is None) != (s.groups is None),
            field="uris",
        ),
        Rule(
            "documentSeparator is for plain text only: write format: Text, or leave documentSeparator out",
            cel="!has(self.documentSeparator) || self.format == 'Text'",
            holds=lambda s: s.document_separator is None or s.format is SourceFormat.TEXT,
            field="documentSeparator",
        ),
    )

    uris: list[SourceUri] | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description=(
            "Files, folders or globs (* within a folder, ** across folders): plain paths, file://, "
            "gs://bucket/path, s3://bucket/path or hf://datasets/org/name[@revision]/path. The order decides the "
            "output; a file that two patterns match counts once. In folders and globs, names that begin with . or _ "
            "are skipped, and links are followed. The plan pins the commit of a Hub dataset. The content decides the "
            "compression (none, gzip, zstd), not the suffix."
        ),
        examples=[["gs://corpus/fineweb-edu/*.parquet"]],
    )
    groups: Groups | None = Field(
        default=None,
        description=(
            "Named parts of the corpus, in place of uris: web, code, books, a language. Files of a group stand "
            "together, in the order of the list. Of each group a share of its documents, or about so many tokens, may "
            "be taken. All counts are given per group."
        ),
        examples=[[{"name": "code", "uris": ["gs://corpus/code/*.parquet"], "share": "30%"}]],
    )
    format: SourceFormat = Field(
        default=SourceFormat.AUTO,
        description=(
            "The layout of a record: Jsonl (one JSON object per line), Parquet (one row), Text (one file, or "
            "one text before each documentSeparator). Auto decides for each file: Parquet by content, otherwise by "
            "suffix, otherwise Jsonl if the file begins with {."
        ),
        examples=["Jsonl"],
    )
    text_field: FieldPath = Field(
        default="text",
        description="The field or column that holds the text. A dotted path descends into objects: doc.text.",
        examples=["content"],
    )
    id_field: FieldPath = Field(
        default="id",
        description="The field or column of the document's id, which `tokjob show` prints. A document needs no id.",
        examples=["meta.url"],
    )
    document_separator: Text | None = Field(
        default=None,
        description=("Ends a document within a text file; only with format: Text. Absent: one file is one document."),
        examples=["<|endoftext|>"],
    )


class Documents(SpecBlock):
    """Which documents are usable."""

    max_bytes: Quantity = Field(
        default="64Mi",
        description=(
            "The largest document, in bytes of UTF-8 text. Larger ones are quarantined as DocumentTooLarge, "
            "and never loaded whole."
        ),
        examples=["16Mi"],
    )
