"""Shows documents at a place in a dataset: tokens, decoded text, and their positions in the source.

Tokens and text come from the dataset alone. Position, line and id come from reading the source file up to the
document (a compressed file from its start), with the readers of a run. Where the source cannot be read any more, or
holds another text there, they are left out and `note` says why.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from itertools import groupby
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from tokenization_worker.api.data import Delimiters, SourceFormat, SplitSpec
from tokenization_worker.dataset.dataset import (
    Dataset,
    DocumentPlace,
    TokenArray,
    TokenIsPadding,
    open_dataset,
    part_of,
)
from tokenization_worker.dataset.split import Split
from tokenization_worker.dataset.token_stream import Stream
from tokenization_worker.errors import SpecError, TokenizationError
from tokenization_worker.messages.commands import tokjob
from tokenization_worker.planning.groups.shares import hash_ends_of, is_in_share
from tokenization_worker.planning.splits import Streams, stream_of
from tokenization_worker.readers.document_batch import CorruptFileError, FileSlice, ReadOptions
from tokenization_worker.readers.identity import describe_id, read_id
from tokenization_worker.readers.parquet.one_row import read_cell
from tokenization_worker.readers.records import SourceDocument, read_each
from tokenization_worker.storage.base import ByteReader, NotFound
from tokenization_worker.storage.source_file import Changed, describe_file
from tokenization_worker.storage.sources import open_source, open_unchanged
from tokenization_worker.tokenizers.base import Tokenizer
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.tokenizers.recorded import recorded_spec


@dataclass(frozen=True, slots=True)
class ShownDocument:
    """A document, whole also where it straddles shards: `tokens` with its delimiters, `text` without. Where rows are
    shuffled or packed: the piece of it in one row.

    `begin_id`, `end_id`: the delimiters before and after its text; None where none stands there. `position` (byte
    offset in the decompressed file, or row) and `record` (line, piece or row, from 1) are its place in `place.uri`, and
    `id` is its id there; None where the source does not say, for which `note` has the reason.
    """

    place: DocumentPlace
    tokens: TokenArray
    text: str
    id: str | None
    position: int | None
    record: int | None
    note: str
    begin_id: int | None
    end_id: int | None


def show_documents(
    uri: str | os.PathLike[str], split: str, token: int, count: int = 1, *, group: str = ""
) -> list[ShownDocument]:
    """The document that a token of a split belongs to, and the ones after it: `count`, fewer at the split's end.
    `group`: the token is one of this group's part of the split, where groups are in paths.

    Raises `SpecError` where there is no such dataset, split or token, or its tokenizer cannot be loaded.
    """
    dataset = open_dataset(uri)
    view, token = _find_view(dataset, split, group, token)
    places = _places(dataset, view, token, count)
    source = _Source(dataset, load_tokenizer(recorded_spec(dataset.index)), view.stream)
    stream = view.stream
    start = view.start
    shown: list[ShownDocument] = []
    is_apart = dataset.is_reordered
    for (file, _), members in groupby(places, key=lambda place: (place.uri, place.start if is_apart else 0)):
        wanted = list(members)
        documents, note = source.find(file, wanted)
        for number, place in enumerate(wanted):
            first = start + place.start
            tokens = stream.tokens(first, first + place.tokens)
            document = documents[number] if number < len(documents) else None
            shown.append(source.show(place, tokens, document, note))
    return shown


def _find_view(dataset: Dataset, split: str, group: str, token: int) -> tuple[Split, int]:
    """The split, or the part of a group, that holds the token, and its number there."""
    view = dataset[split]
    if group and group not in view.groups:
        step = f"one of: {', '.join(view.groups)}" if view.groups else "leave --group out: its shards hold all groups"
        raise SpecError("GroupUnknown", f"split {split!r} of {dataset.uri} has no group {group!r}", next_step=step)
    view = view.groups[group] if group else view
    if not 0 <= token < len(view):
        of_group = f" of group {group}" if group else ""
        message = f"split {split!r}{of_group} of {dataset.uri} has no token {token:,}"
        raise SpecError("TokenUnknown", message, next_step=f"give a number from 0 to {len(view) - 1:,}")
    return part_of(view, token)


def _places(dataset: Dataset, view: Split, token: int, count: int) -> list[DocumentPlace]:
    end = len(view)
    places: list[DocumentPlace] = []
    while len(places) < count and token < end:
        try:
            places.append(dataset.locate_in(view, token))
        except TokenIsPadding:
            if not places:
                raise
            token += -token % (dataset.row_length or 1)  # padding ends where its row does
        else:
            token = places[-1].start + places[-1].tokens
    return places


class _Source:
    """The source of one token stream of a dataset, read again as the run has read it."""

    def __init__(self, dataset: Dataset, tokenizer: Tokenizer, stream: Stream) -> None:
        self._dataset = dataset
        self._tokenizer = tokenizer
        self._stream = stream.number
        self._are_pieces = stream.are_pieces_apart
        data = dataset.index["data"]
        source = data["source"]
        separator = source["documentSeparator"]
        self._options = ReadOptions(
            SourceFormat(source["format"]),
            source["textField"],
            None if separator is None else separator.encode(),
            data["documents"]["maxBytes"],
        )
        self._id_field: str = source["idField"]
        self._delimiters = Delimiters.from_json(data["tokenizer"]["delimiter"])
        self._thresholds = _thresholds(data["output"]["splits"])
        self._hash_ends = hash_ends_of(source)
        self._crash_verdicts = {
            (entry["uri"], entry["position"]): entry["sha256"] for entry in dataset.index["run"].get("poison", ())
        }

    def find(self, uri: str, places: list[DocumentPlace]) -> tuple[list[SourceDocument], str]:
        """The documents of the source that follow each other in one file; and why there are none, if so."""
        row = self._dataset.source_file(uri)
        found: list[SourceDocument] = []
        before = places[0].documents_after
        try:
            with closing(open_unchanged(uri, row["size"], row["version"], row.get("pin", ""))) as stream:
                for document in self._in_stream(stream, row, places[0].known_position):
                    if before:
                        before -= 1
                        continue
                    found.append(document)
                    if len(found) == len(places):
                        return found, ""
        except NotFound:
            return [], "the source file does not exist"
        except Changed as error:
            return [], f"the source file has changed: was {describe_file(error.was)}; is {describe_file(error.now)}"
        except CorruptFileError as damage:
            return [], f"the source file is corrupt: {damage.detail}"
        except TokenizationError as error:
            return [], f"the source cannot be read: {error.message}"
        return found, f"the source file ends before this document; {self._check()}"

    def _in_stream(self, stream: ByteReader, row: Mapping[str, Any], start: int) -> Iterator[SourceDocument]:
        """The documents of a file that have tokens in this token stream."""
        file = FileSlice(0, row["uri"], row["size"], row["version"], pin=row.get("pin", ""))
        hash_end = self._hash_ends.get(row.get("group", ""))
        for document in read_each(stream, file, self._options, start):
            text = document.text.encode()
            digest = self._crash_verdicts.get((file.uri, document.position))
            if digest is not None and digest == sha256(text).hexdigest():
                continue  # it was left out, because it crashes the tokenizer
            if stream_of(text, self._thresholds) != self._stream:
                continue
            if hash_end is not None and not is_in_share(text, hash_end):
                continue
            if not self._delimiters.ids and not len(self._encode(document)):
                continue  # a document of no tokens is in no shard
            yield document

    def _encode(self, document: SourceDocument) -> TokenArray:
        return self._tokenizer.reference.encode([document.text]).ids

    def _check(self) -> str:
        return f"check the dataset with: {tokjob('verify', '--mode', 'full', self._dataset.uri)}"

    def show(
        self, place: DocumentPlace, tokens: TokenArray, document: SourceDocument | None, note: str
    ) -> ShownDocument:
        """What is known of the document at `place`, which has these tokens."""
        begin = None if place.offset else self._delimiters.begin
        end = self._delimiters.end if tokens[-1] == self._delimiters.end else None
        around = (begin, end)
        decoded = self._tokenizer.decode(tokens[Delimiters(begin, end).inside].tolist())
        if document is None:
            return ShownDocument(place, tokens, decoded, None, None, None, note, *around)
        if not np.array_equal(self._expected(document, place), tokens):
            note = f"the source has another text here; {self._check()}"
            return ShownDocument(place, tokens, decoded, None, document.position, document.number, note, *around)
        name, note = self._read_id(document, place.uri)
        return ShownDocument(place, tokens, decoded, name, document.position, document.number, note, *around)

    def _expected(self, document: SourceDocument, place: DocumentPlace) -> NDArray[np.int64]:
        """The tokens that should be at `place`."""
        begin, end = ([] if token is None else [token] for token in (self._delimiters.begin, self._delimiters.end))
        whole = np.concatenate([begin, self._encode(document), end]).astype(np.int64)
        return whole[place.offset : place.offset + place.tokens] if self._are_pieces else whole

    def _read_id(self, document: SourceDocument, uri: str) -> tuple[str | None, str]:
        """The id of a document, and why it is not known, if so."""
        if document.line:
            return read_id(orjson.loads(document.line), self._id_field, uri, document.position), ""
        try:
            with closing(open_source(uri, self._dataset.source_file(uri).get("pin", ""))) as stream:
                is_parquet = stream.read(4) == b"PAR1"  # plain text has no ids
                value = read_cell(stream, document.position, self._id_field) if is_parquet else None
        except CorruptFileError as damage:
            return None, f"the id cannot be read: {damage.detail}"
        except TokenizationError as error:
            return None, f"the id cannot be read: {error.message}"
        return describe_id(value, uri, document.position), ""


def _thresholds(splits: list[dict[str, Any]]) -> list[int]:
    """What decides a document's token stream; nothing where there is one."""
    shares = [None if split["share"] is None else Fraction(split["share"]) for split in splits]
    specs = (SplitSpec(split["name"], split["shards"], share) for split, share in zip(splits, shares, strict=True))
    streams = Streams(tuple(specs))
    return streams.thresholds() if streams.by_hash else []
