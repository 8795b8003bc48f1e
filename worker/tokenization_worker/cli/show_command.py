"""`tokjob show`: documents at a place in a dataset, its rows, or the unusable documents of a run."""

from __future__ import annotations

import dataclasses

import orjson

from tokenization_worker.cli.escapes import printable, say
from tokenization_worker.cli.numbers import counted, read_count, read_number
from tokenization_worker.cli.parser import CommandParser
from tokenization_worker.dataset.dataset import open_dataset
from tokenization_worker.inspect.show import ShownDocument, show_documents
from tokenization_worker.inspect.show_rows import ShownRow, show_rows
from tokenization_worker.inspect.unusable_documents import UnusableDocument, read_unusable
from tokenization_worker.inspect.uris import absolute_uri

SHOWN_CHARACTERS = 2000
SHOWN_CHARACTERS_OF_PART = 300
SHOWN_TOKENS = 16


def main(arguments: list[str]) -> int:
    """Show documents, decoded, and where they come from."""
    parser = CommandParser(
        prog="tokjob show",
        description="Show the documents and tokens at a place in a dataset, or its rows, decoded; or a run's unusable "
        "documents.",
    )
    parser.add_argument("output", help="output.uri of a finished job; with --quarantined of any job that was started")
    parser.add_argument(
        "--quarantined",
        action="store_true",
        help="list unusable documents: place, reason and the first 200 characters; also of a run that has failed",
    )
    parser.add_argument("--split", metavar="NAME", help="the split (default: the last one)")
    parser.add_argument("--group", metavar="NAME", default="", help="only with {group} in output.path: of this group")
    parser.add_argument(
        "--token", type=read_number, default=0, help="a token's number within the split; 0 is the first"
    )
    parser.add_argument(
        "--row", type=read_number, help="show this row of the split, with its parts and padding; 0 is the first"
    )
    parser.add_argument(
        "--count", type=read_count, default=1, help="how many documents, from the one that holds the token, or rows"
    )
    parser.add_argument("--whole", action="store_true", help="print whole texts, not their beginnings")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(arguments)
    uri = absolute_uri(options.output)
    if options.quarantined:
        others = (options.split, options.group, options.token, options.row is not None, options.count != 1)
        if any(others) or options.whole:
            flags = "--split, --group, --token, --row, --count, --whole"
            parser.error(f"--quarantined lists all unusable documents: {flags} do not apply")
        return _list_unusable(uri, as_json=options.json)
    if options.row is not None and options.token:
        parser.error("--token shows documents, and --row shows rows: give one of them")
    if options.row is not None and options.group:
        parser.error("--row counts the rows of all groups of a split: leave --group out")
    split = options.split or list(open_dataset(uri))[-1]
    if options.row is not None:
        for row in show_rows(uri, split, options.row, options.count):
            if options.json:
                print(orjson.dumps(dataclasses.asdict(row), option=orjson.OPT_SERIALIZE_NUMPY).decode())
            else:
                say("\n".join(_row_lines(row, whole=options.whole)))
        return 0
    for document in show_documents(uri, split, options.token, options.count, group=options.group):
        if options.json:
            print(orjson.dumps(dataclasses.asdict(document), option=orjson.OPT_SERIALIZE_NUMPY).decode())
        else:
            say("\n".join(_lines(document, whole=options.whole)))
    return 0


def _list_unusable(uri: str, *, as_json: bool) -> int:
    """Print every unusable document as it is read; the list may be longer than memory."""
    count = 0
    for document in read_unusable(uri):
        count += 1
        if as_json:
            print(orjson.dumps(document).decode())
        else:
            say("\n".join(_unusable_lines(document)))
    if not as_json:
        say(counted(count, "unusable document"))
    return 0


def _unusable_lines(document: UnusableDocument) -> list[str]:
    record = "" if document.record is None else f"  record {document.record:,}"
    return [
        f"── {document.reason}  {printable(document.uri)}{record}  position {document.position:,}",
        f"   detail   {printable(document.detail)}",
        f"   excerpt  {printable(document.excerpt)}",
    ]


def _lines(document: ShownDocument, *, whole: bool) -> list[str]:
    place = document.place
    position = "" if document.position is None else f"  position {document.position:,}  record {document.record:,}"
    group = f"  group {place.group}" if place.group else ""
    before = f"  after {counted(place.offset, 'token')} of the document" if place.offset else ""
    lines = [
        f"── {place.split} token {place.start:,}{group}  {counted(len(document.tokens), 'token')}{before}",
        f"   source  {printable(place.uri)}{position}",
        f"   id      {printable(document.id) if document.id is not None else 'unknown'}",
        f"   ids     {_ids(document)}",
    ]
    if document.note:
        lines.append(f"   note    {printable(document.note)}")
    return [*lines, *_text_lines(document.text, SHOWN_CHARACTERS, whole=whole)]


def _row_lines(row: ShownRow, *, whole: bool) -> list[str]:
    """A line for each part and for padding, with the tokens of the row that it has."""
    lines = [f"── {row.split} row {row.row:,}  {counted(len(row.tokens), 'token')}  {counted(len(row.parts), 'part')}"]
    for part in row.parts:
        before = f"  after {counted(part.offset, 'token')} of the document" if part.offset else ""
        lines.append(f"── [{part.start:,}, {part.end:,})  {printable(part.uri)}  position {part.position:,}{before}")
        lines += _text_lines(part.text, SHOWN_CHARACTERS_OF_PART, whole=whole)
    if row.padding:
        start, end = len(row.tokens) - row.padding, len(row.tokens)
        lines.append(f"── [{start:,}, {end:,})  padding: {row.padding:,} times token {row.tokens[-1]}")
    return lines


def _text_lines(text: str, most: int, *, whole: bool) -> list[str]:
    shown = text if whole else text[:most]
    hidden = len(text) - len(shown)
    return [
        printable(shown, "\n\t"),
        *([f"   ... {hidden:,} more characters (--whole shows them)"] if hidden else []),
    ]


def _ids(document: ShownDocument) -> str:
    """The first tokens of a document, and its last one if that is a delimiter; delimiters are in brackets."""
    tokens, (begin, end) = document.tokens, (document.begin_id, document.end_id)
    words = [str(token) for token in tokens[:SHOWN_TOKENS].tolist()]
    if len(tokens) > SHOWN_TOKENS:
        words += ["..."] if end is None else ["...", str(tokens[-1])]
    is_pair = begin is not None and end is not None
    if begin is not None:
        words[0] = f"[{'begin' if is_pair else 'delimiter'} {words[0]}]"
    if end is not None:
        words[-1] = f"[{'end' if is_pair else 'delimiter'} {words[-1]}]"
    return " ".join(words)
