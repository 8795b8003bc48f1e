"""report.json of a training: what tokenizers make of its held-out documents. Writes and reads it.

The bytes depend on the documents and the tokenizers alone. Numbers of groups, of scripts and of all text are sums over
the cells: the record holds no number twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from msgspec import Struct, convert, to_builtins
from msgspec.structs import asdict, replace

from tokenization_worker.output import layout
from tokenization_worker.output.record import dump_record, load_record, parsing, require_version
from tokenization_worker.output.recovery import advise_training
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.training.fertility import Cell, Count, Fertility, MeasuredHoldout

FORMAT_VERSION = 1

WIDTHS = (2048, 4096, 8192)
"""Of models, for the size of an embedding."""


class HoldoutFacts(Struct, frozen=True):
    """The documents that were measured."""

    documents: Count
    bytes: Count


class TokenizerFacts(Fertility, frozen=True, rename="camel"):
    """A tokenizer. `source_tokens`: what the whole source has at the same bytes a token. `embedding`: parameters of one
    matrix, by the width of a model.
    """

    source_tokens: Count
    embedding: dict[str, Count]


class TrainingReport(Struct, frozen=True, rename="camel"):
    """report.json (docs/train-a-tokenizer.md). `source_bytes`: of the text of the whole source, held out or not."""

    format_version: int
    holdout: HoldoutFacts
    source_bytes: Count
    cells: tuple[Cell, ...]
    tokenizers: tuple[TokenizerFacts, ...]

    def __post_init__(self) -> None:
        if _sum_up(self.cells) != self.holdout:
            raise ValueError("its cells do not add up to its holdout")
        if any(len(each.tokens) != len(self.cells) for each in self.tokenizers):
            raise ValueError("a tokenizer has not one number of tokens for each cell")
        if any(each.embedding.keys() != {str(width) for width in WIDTHS} for each in self.tokenizers):
            raise ValueError(f"a tokenizer has not one embedding for each width of {WIDTHS}")

    def fields(self) -> dict[str, object]:
        """Plain JSON values."""
        found: dict[str, object] = to_builtins(self)
        return found


def make_report(holdout: MeasuredHoldout, source_bytes: int, measured: Sequence[Fertility]) -> TrainingReport:
    """The report on tokenizers that were measured on `holdout`. `source_bytes`: UTF-8 bytes of the source's text."""
    empty = TrainingReport(FORMAT_VERSION, _sum_up(holdout.cells), source_bytes, holdout.cells, ())
    return add_tokenizers(empty, measured)


def add_tokenizers(report: TrainingReport, measured: Sequence[Fertility]) -> TrainingReport:
    """The report with other tokenizers, which were measured on the same cells, behind its own."""
    added = tuple(
        TokenizerFacts(
            **asdict(each),
            source_tokens=_scale(sum(each.tokens), report),
            embedding={str(width): each.vocabulary_size * width for width in WIDTHS},
        )
        for each in measured
    )
    return replace(report, tokenizers=report.tokenizers + added)


def dump_report(report: TrainingReport) -> bytes:
    """The bytes of report.json."""
    return dump_record(report.fields())


def read_report(store: Store) -> TrainingReport | None:
    """The report at `store`, None where there is none; raises `DataError` for one that is not as it was written, and
    `ChangedError` for one of another version.
    """
    try:
        data = store.read(layout.REPORT)
    except NotFound:
        return None
    with parsing(store.uri, layout.REPORT, advise=lambda: advise_training(store, also="this file and ")):
        fields = load_record(data)
        require_version(store.uri, layout.REPORT, fields["formatVersion"], FORMAT_VERSION)
        return parse_report(fields)


def parse_report(fields: dict[str, Any]) -> TrainingReport:
    """The report of plain JSON values; raises `ValueError` where they are none."""
    return convert(fields, TrainingReport)


def _sum_up(cells: Sequence[Cell]) -> HoldoutFacts:
    return HoldoutFacts(sum(cell.documents for cell in cells), sum(cell.bytes for cell in cells))


def _scale(tokens: int, report: TrainingReport) -> int:
    """The tokens of the whole source, rounded; 0 where the held-out documents are empty."""
    size = report.holdout.bytes
    return round(Fraction(report.source_bytes * tokens, size)) if size else 0
