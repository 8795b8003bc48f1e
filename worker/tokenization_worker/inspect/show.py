"""Documents at a place in a dataset: tokens, decoded text, and where they stand in the source.

Tokens and text come from the dataset alone. Position, line and id come from reading the source file up to the
document (a compressed file from its start), with `verify`'s reader. Where the source cannot be read any more, or
holds another text there, they are left out and `note` says why.
"""

from __future__ import annotations

import io
import os
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import orjson

from tokenization_worker.api.data import DelimiterPosition
from tokenization_worker.dataset.dataset import Dataset, DocumentPlace, TokenArray, open_dataset
from tokenization_worker.errors import DataError, SpecError, TokenizationError
from tokenization_worker.messages.commands import tokjob
from tokenization_worker.output import layout
from tokenization_worker.readers.identity import read_id
from tokenization_worker.storage.base import NotFound
from tokenization_worker.storage.open import open_store
from tokenization_worker.storage.source_file import Changed, describe_file
from tokenization_worker.storage.sources import open_source, open_unchanged
from tokenization_worker.tokenizers.base import Tokenizer
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.verification.decoders.record import Damaged, Record, SeekableStream, refuse_poison
from tokenization_worker.verification.decoders.source import read_records
from tokenization_worker.verification.facts import Facts, Unreadable, read_facts, read_table, stream_of


@dataclass(frozen=True, slots=True)
class ShownDocument:
    """A document, whole also where it straddles shards: `tokens` with its delimiter, `text` without.

    `position` (byte offset in the decompressed file, or row) and `record` (line, piece or row, from 1) are its
    place in `place.uri`, and `id` is its id there; None where the source does not say, for which `note` has
    the reason.
    """

    place: DocumentPlace
    tokens: TokenArray
    text: str
    id: str | None
    position: int | None
    record: int | None
    note: str


def show_documents(uri: str | os.PathLike[str], split: str, token: int, count: int = 1) -> list[ShownDocument]:
    """The document that a token of a split belongs to, and the ones after it: `count`, fewer at the split's end.

    Raises `SpecError` where there is no such dataset, split or token, or its tokenizer cannot be loaded.
    """
    dataset = open_dataset(uri)
    facts = _facts(dataset)
    places = _places(dataset, split, token, count)
    tokenizer = load_tokenizer(facts.tokenizer)
    stream = dataset[split].stream
    start = dataset[split].start
    shown: list[ShownDocument] = []
    for file, group in groupby(places, key=lambda place: place.uri):
        wanted = list(group)
        records, note = _find_records(dataset, facts, tokenizer, file, stream.number, wanted)
        for number, place in enumerate(wanted):
            first = start + place.start
            tokens = stream.tokens(first, first + place.tokens)
            record = records[number] if number < len(records) else None
            shown.append(_show(facts, tokenizer, dataset, place, tokens, record, note))
    return shown


def _facts(dataset: Dataset) -> Facts:
    store = open_store(dataset.uri)
    try:
        return read_facts(store, dataset.index, read_table(store, layout.SHARDS_TABLE))
    except Unreadable as error:
        raise DataError("TableCorrupt", str(error.finding), next_step=tokjob("verify", dataset.uri)) from error


def _places(dataset: Dataset, split: str, token: int, count: int) -> list[DocumentPlace]:
    end = len(dataset[split])
    if not 0 <= token < end:
        message = f"split {split!r} of {dataset.uri} has no token {token:,}"
        raise SpecError("TokenUnknown", message, next_step=f"give a number from 0 to {end - 1:,}")
    places: list[DocumentPlace] = []
    while len(places) < count and token < end:
        places.append(dataset.locate(split, token))
        token = places[-1].start + places[-1].tokens
    return places


def _find_records(
    dataset: Dataset, facts: Facts, tokenizer: Tokenizer, uri: str, stream: int, places: list[DocumentPlace]
) -> tuple[list[Record], str]:
    """The source records of documents that follow each other in one file; and why there are none, if so."""
    row = dataset.source_file(uri)
    records: list[Record] = []
    before = places[0].documents_after
    poison = facts.poison.get(uri, {})
    try:
        with closing(open_unchanged(uri, row["size"], row["version"], row.get("pin", ""))) as source:
            for found in read_records(source, uri, facts.rules, places[0].known_position):
                record = refuse_poison(found, poison)
                if record.text is None or stream_of(record.text, facts.thresholds) != stream:
                    continue
                if facts.delimiter_id is None and not len(tokenizer.reference.encode([record.text]).ids):
                    continue  # a document of no tokens is in no shard
                if before:
                    before -= 1
                    continue
                records.append(record)
                if len(records) == len(places):
                    return records, ""
    except NotFound:
        return [], "the source file is gone"
    except Changed as error:
        return [], f"the source file has changed: was {describe_file(error.was)}; is {describe_file(error.now)}"
    except Damaged as damage:
        return [], f"the source file is damaged: {damage.detail}"
    except TokenizationError as error:
        return [], f"the source cannot be read: {error.message}"
    return records, f"the source file ends before this document; {_check(dataset)}"


def _check(dataset: Dataset) -> str:
    return f"check the dataset with: {tokjob('verify', '--mode', 'full', dataset.uri)}"


def _show(
    facts: Facts,
    tokenizer: Tokenizer,
    dataset: Dataset,
    place: DocumentPlace,
    tokens: TokenArray,
    record: Record | None,
    note: str,
) -> ShownDocument:
    text = tokens
    if facts.delimiter_id is not None:
        text = tokens[1:] if facts.delimiter_position is DelimiterPosition.BEFORE else tokens[:-1]
    decoded = tokenizer.decode(text.tolist())
    if record is None or record.text is None:
        return ShownDocument(place, tokens, decoded, None, None, None, note)
    if not np.array_equal(tokenizer.reference.encode([record.text]).ids, text):
        note = f"the source has another text here; {_check(dataset)}"
        return ShownDocument(place, tokens, decoded, None, record.position, record.number, note)
    id_field = dataset.index["data"]["source"]["idField"]
    source = dataset.source_file(place.uri)
    value = orjson.loads(record.raw) if record.raw else _read_row(source, record.position, id_field)
    name = read_id(value, id_field, place.uri, record.position)
    return ShownDocument(place, tokens, decoded, name, record.position, record.number, note)


def _read_row(described: dict[str, Any], row: int, id_field: str) -> Any:
    """The id column of one row of a Parquet file; nothing for a file of plain text, which has no ids."""
    with closing(open_source(described["uri"], described.get("pin", ""))) as source:
        if source.read(4) != b"PAR1":
            return None
        import pyarrow.parquet

        source.seek(0)
        parquet: Any = pyarrow.parquet
        # In this thread alone: one of pyarrow's that still holds our stream when the interpreter ends aborts it.
        with parquet.ParquetFile(io.BufferedReader(SeekableStream(source)), pre_buffer=False) as file:
            for group in range(file.metadata.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if row < rows:
                    table = file.read_row_group(group, columns=[id_field.partition(".")[0]], use_threads=False)
                    return table.slice(row, 1).to_pylist()[0] if table.num_columns else None
                row -= rows
    return None
