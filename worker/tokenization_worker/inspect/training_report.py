"""Shows the report of a training again, with other tokenizers measured on the same held-out documents."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tokenization_worker.api.data import DelimiterPosition, TokenizerSpec
from tokenization_worker.api.manifest.keywords import SHORT, tokenizer_field
from tokenization_worker.api.resolve import resolve_uri
from tokenization_worker.errors import ChangedError, SpecError
from tokenization_worker.inspect.training_status import find_unfinished_training, holds_training_index
from tokenization_worker.inspect.uris import absolute_uri
from tokenization_worker.messages.commands import tokjob
from tokenization_worker.output import layout
from tokenization_worker.output.recovery import advise_training
from tokenization_worker.output.training_index import read_training_index
from tokenization_worker.output.training_report import TrainingReport, add_tokenizers, read_report
from tokenization_worker.pipelines.train.holdout import read_held_out
from tokenization_worker.processes import default_processes
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.storage.open import open_store
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.training.fertility import MeasuredHoldout, measure_holdout, measure_tokenizer

_ELSEWHERE = "put the file back from a copy; or train at another output.uri"


def holds_training(uri: str | os.PathLike[str]) -> bool:
    """Whether a finished training is at `uri`; raises `SpecError` for an unfinished one."""
    store = open_store(absolute_uri(uri))
    if holds_training_index(store):
        return True
    if find_unfinished_training(store) is not None:
        raise SpecError(
            "NotADataset",
            f"{store.uri} holds an unfinished training, which has no report yet",
            next_step=f"start the same `tokjob train` again, which continues from here; {tokjob('status', store.uri)} "
            "shows how far it is",
        )
    return False


def report_training(uri: str | os.PathLike[str], others: Sequence[str] = ()) -> TrainingReport:
    """The report of the finished training at `uri`, with `others` behind its own tokenizers.

    `others`: names or files, as `tokjob run --tokenizer` takes them; special tokens and delimiters do not matter.
    Raises `SpecError` where the training held out nothing, or another tokenizer cannot be loaded or cannot encode a
    document, and `ChangedError` where a file of the training is gone or another one.
    """
    store = open_store(absolute_uri(uri))
    report = _read(store)
    tokenizers = [load_tokenizer(_spec_of(other)) for other in others]  # before minutes of work
    if not tokenizers:
        return report
    holdout = _measure(store, report)
    measured = [
        measure_tokenizer(
            tokenizer,
            holdout,
            name=other,
            threads=default_processes(),
            advice=f"leave out --tokenizer {other}: it cannot be compared on this text",
        )
        for other, tokenizer in zip(others, tokenizers, strict=True)
    ]
    return add_tokenizers(report, measured)


def _read(store: Store) -> TrainingReport:
    report = read_report(store)
    if report is not None:
        return report
    index = read_training_index(store)
    if index is not None and index["documents"]["heldOut"]:
        raise ChangedError(
            "TokenizerChanged",
            f"{store.uri}/{layout.REPORT} is gone",
            next_step=advise_training(store),
        )
    raise SpecError(
        "SpecInvalid",
        f"{store.uri} has no report: no document was held out, so there is no text to measure its tokenizer on",
        next_step="train at another output.uri with a holdout, such as --holdout 1%",
    )


def _measure(store: Store, report: TrainingReport) -> MeasuredHoldout:
    """The held-out documents in cells; raises unless they are those of the report."""
    where = f"{store.uri}/{layout.HOLDOUT}"
    try:
        holdout = measure_holdout(
            (document.text, document.group) for document in read_held_out(store.read(layout.HOLDOUT))
        )
    except NotFound as error:
        raise ChangedError("TokenizerChanged", f"{where} is gone", next_step=_ELSEWHERE) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ChangedError(
            "TokenizerChanged", f"{where} is not what the training wrote: {error}", next_step=_ELSEWHERE
        ) from error
    if holdout.cells != report.cells:
        expected, found = (
            f"{sum(cell.documents for cell in cells):,} documents of {sum(cell.bytes for cell in cells):,} bytes in "
            f"{len(cells)} groups and scripts"
            for cells in (report.cells, holdout.cells)
        )
        raise ChangedError(
            "TokenizerChanged",
            f"{where} holds other documents than {layout.REPORT} measures: expected {expected}, found {found}",
            next_step=f"{_ELSEWHERE}. If both have the same documents and bytes, another version of the package regex "
            "wrote the report",
        )
    return holdout


def _spec_of(other: str) -> TokenizerSpec:
    """A tokenizer without delimiters: nothing stands between documents that are measured."""
    is_file = tokenizer_field(other) != SHORT["tokenizer"]
    return TokenizerSpec(
        name=None if is_file else other,
        uri=resolve_uri(other) if is_file else None,
        pattern=None,
        special_tokens=(),
        delimiter_token=None,
        delimiter_position=DelimiterPosition.NONE,
    )
