"""Which fields of a sample of JSON records could be meant, where none of them is the text. Pure; for messages alone."""

from __future__ import annotations

import json
import posixpath
import shlex
from collections.abc import Iterator

import orjson

from tokenization_worker.commands import convert
from tokenization_worker.readers.archives import UNPACK
from tokenization_worker.readers.blank_lines import first_lines
from tokenization_worker.readers.documents import Compression
from tokenization_worker.readers.kinds import UTF8_BOM

_MOST_RECORDS = 100
_MOST_SHOWN = 5
_MOST_DEPTH = 8
_SPEAKERS = {"role": "content", "from": "value"}
"""Who speaks, and what is said, as chats name them."""


_FROM_PYTHON = "import ast, json, sys; [print(json.dumps(ast.literal_eval(each))) for each in sys.stdin]"


def text_advice(content: bytes, uri: str, compression: Compression = Compression.NONE) -> str:
    """What to do about records of JSON without a text at `source.textField`: a sentence for `next_step`, or ""."""
    lengths: dict[str, int] = {}
    records = list(_records(content))
    if not records:
        return _lines_advice(content, uri, compression)
    for record in records:
        chat = _find_chat(record)
        if chat is not None:
            return _chat_advice(*chat, uri, compression)
        for path, text in _strings(record, "", 0):
            lengths[path] = lengths.get(path, 0) + len(text)
    if not lengths:
        return "set source.textField to the field that holds the text; no field holds a string in the first records"
    longest = sorted(lengths, key=lambda path: -lengths[path])
    return did_you_mean(longest[:1]) + (
        f" (strings, longest first: {', '.join(longest[:_MOST_SHOWN])})" if len(longest) > 1 else ""
    )


def _lines_advice(content: bytes, uri: str, compression: Compression) -> str:
    """For content without a record in a line; "" where nothing can be said."""
    first = content.removeprefix(UTF8_BOM).lstrip().partition(b"\n")[0].rstrip()
    if first.startswith(b"{") and first.endswith(b"},"):
        command = convert(uri, UNPACK[compression], "sed 's/,[[:space:]]*$//'", _name("lines", uri))
        return f"a line ends in a comma, as in a JSON array, and one object a line is needed: {command}"
    if first.startswith(b"{'"):
        command = convert(uri, UNPACK[compression], f"python3 -c {shlex.quote(_FROM_PYTHON)}", _name("lines", uri))
        return f"a line is a dictionary of Python, in single quotes, and JSON is needed: {command}"
    if first != b"{":
        return ""
    command = convert(uri, UNPACK[compression], "jq -c .", _name("lines", uri))
    return f"a JSON object goes over several lines, and one object a line is needed: {command}"


def _name(prefix: str, uri: str) -> str:
    """Of a new file of JSON lines beside `uri`: `lines-a.jsonl`."""
    return f"{prefix}-{posixpath.basename(uri).partition('.')[0]}.jsonl"


def did_you_mean(fields: list[str]) -> str:
    """The question, for fields in order of likelihood; at least one."""
    *first, last = fields[:_MOST_SHOWN]
    return f"did you mean source.textField: {', '.join(first)}{', or ' if first else ''}{last}?"


def _records(content: bytes) -> Iterator[dict[str, object]]:
    for line in first_lines(content, _MOST_RECORDS):
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(record, dict):
            yield record


def _strings(value: dict[str, object], prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    """Every string below `value` with its dotted path; names with a dot in them have none."""
    for name, item in value.items():
        if not name or "." in name:
            continue
        if isinstance(item, str):
            yield prefix + name, item
        elif isinstance(item, dict) and depth < _MOST_DEPTH:
            yield from _strings(item, f"{prefix}{name}.", depth + 1)


def _find_chat(record: dict[str, object]) -> tuple[str, str, str] | None:
    """The field that holds a list of messages, and the names of who speaks and of what is said."""
    for name, value in record.items():
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            for speaker, said in _SPEAKERS.items():
                if all(isinstance(item.get(speaker), str) and isinstance(item.get(said), str) for item in value):
                    return name, speaker, said
    return None


def _chat_advice(field: str, speaker: str, said: str, uri: str, compression: Compression) -> str:
    each = f'm["{speaker}"] + ": " + m["{said}"] for m in r.pop({json.dumps(field)})'
    join = (
        f'import json, sys; [print(json.dumps(r | {{"text": "\\n".join({each})}})) for r in map(json.loads, sys.stdin)]'
    )
    command = convert(uri, UNPACK[compression], f"python3 -c {shlex.quote(join)}", _name("text", uri))
    return (
        f"{field} is a list of chat messages, and a record needs one text: join them as your model expects them, for "
        f"example: {command}"
    )
