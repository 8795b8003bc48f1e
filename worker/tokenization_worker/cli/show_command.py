"""`tokjob show`: documents at a place in a dataset."""

from __future__ import annotations

import dataclasses

import orjson

from tokenization_worker.cli.numbers import read_count
from tokenization_worker.cli.parser import CommandParser
from tokenization_worker.dataset import open_dataset
from tokenization_worker.outlook import absolute_uri
from tokenization_worker.show import ShownDocument, show_documents

SHOWN_CHARACTERS = 2000
SHOWN_TOKENS = 16


def main(arguments: list[str]) -> int:
    """Show documents, decoded, and where they come from."""
    parser = CommandParser(prog="tokjob show", description="The documents and tokens at a place in a dataset, decoded.")
    parser.add_argument("output", help="output.uri of a finished job")
    parser.add_argument("--split", help="the split (default: the last one)")
    parser.add_argument("--token", type=int, default=0, help="a token's number within the split; 0 is the first")
    parser.add_argument(
        "--count", type=read_count, default=1, help="how many documents, from the one that holds the token"
    )
    parser.add_argument("--whole", action="store_true", help="print whole texts, not their beginnings")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args(arguments)
    uri = absolute_uri(options.output)
    split = options.split or list(open_dataset(uri))[-1]
    for document in show_documents(uri, split, options.token, options.count):
        if options.json:
            print(orjson.dumps(dataclasses.asdict(document), option=orjson.OPT_SERIALIZE_NUMPY).decode())
        else:
            print("\n".join(_lines(document, whole=options.whole)))
    return 0


def _lines(document: ShownDocument, *, whole: bool) -> list[str]:
    place = document.place
    ids = " ".join(str(token) for token in document.tokens[:SHOWN_TOKENS].tolist())
    more = " ..." if len(document.tokens) > SHOWN_TOKENS else ""
    position = "" if document.position is None else f"  position {document.position:,}  record {document.record:,}"
    lines = [
        f"── {place.split} token {place.start:,}  {len(document.tokens):,} tokens",
        f"   source  {place.uri}{position}",
        f"   id      {document.id if document.id is not None else 'unknown'}",
        f"   ids     {ids}{more}",
    ]
    if document.note:
        lines.append(f"   note    {document.note}")
    text = document.text if whole else document.text[:SHOWN_CHARACTERS]
    hidden = len(document.text) - len(text)
    return [*lines, text, *([f"   ... {hidden:,} more characters (--whole shows them)"] if hidden else [])]
