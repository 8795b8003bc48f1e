"""Suggests fields of sampled JSON records that may hold the text. Pure; only for messages."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator

import orjson

from tokenization_worker.messages.commands import convert, lines_name
from tokenization_worker.readers.detection.archives import UNPACK
from tokenization_worker.readers.detection.detect import UTF8_BOM
from tokenization_worker.readers.document_batch import Compression
from tokenization_worker.readers.lines.blank_lines import first_lines

_MOST_RECORDS = 100
_MOST_SHOWN = 5
_MOST_DEPTH = 8
_SPEAKERS = {"role": "content", "from": "value"}
"""Who speaks, and what is said, as chats name them."""


_MOST_PARSED = 1 << 20
"""Bytes of an unusable line that are parsed again to find its fault."""

_PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_ENVELOPE = re.compile(rb'\s*\{\s*"([A-Za-z_][A-Za-z0-9_]*)"\s*:\s*\[\s*\{')
_CHATS = (b"messages", b"conversations", b"conversation")

_FROM_PYTHON = "import ast, json, sys; [print(json.dumps(ast.literal_eval(each))) for each in sys.stdin]"


def text_advice(content: bytes, uri: str, compression: Compression = Compression.NONE) -> str:
    """What to do about records of JSON without a text at `source.textField`: a sentence for `next_step`, or ""."""
    lengths: dict[str, int] = {}
    envelope = _envelope(content)
    if envelope is not None:
        path = f".{envelope}[]" if _PLAIN.fullmatch(envelope) else f".[{json.dumps(envelope)}][]"
        command = convert(uri, UNPACK[compression], f"jq -c {shlex.quote(path)}", lines_name("lines", uri))
        return f"{envelope} is a list of all records, and one JSON object a line is needed: {command}"
    records = list(first_records(content))
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


def line_advice(content: bytes, lines: list[bytes], uri: str, compression: Compression) -> str:
    """What to do where all unusable `lines` of `content` have one fault that a command corrects; else ""."""
    first = next(first_lines(content, 1), b"").strip()
    if first == b"[" or (first.startswith(b"[") and first.endswith(b",")):
        return array_advice(uri, compression)
    for is_fault, what, command in _FAULTS:
        if all(len(line) <= _MOST_PARSED and is_fault(line.removeprefix(UTF8_BOM).strip()) for line in lines):
            return f"{what}: {convert(uri, UNPACK[compression], command, lines_name('lines', uri))}"
    return ""


def array_advice(uri: str, compression: Compression) -> str:
    """What to do with a JSON array, on one line or on many."""
    command = convert(uri, UNPACK[compression], "jq -c '.[]'", lines_name("lines", uri))
    return f"the file begins with '[', as a JSON array does; one JSON object a line is needed: {command}"


def _is_string(line: bytes) -> bool:
    try:
        return line.startswith(b'"') and isinstance(orjson.loads(line), str)
    except orjson.JSONDecodeError:
        return False


def _is_joined(line: bytes) -> bool:
    """Several objects on one line."""
    try:
        text = line.decode()
        record, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and text[end:].lstrip().startswith("{")


def _has_nan(line: bytes) -> bool:
    """An object that only a parser takes that knows NaN and Infinity."""
    found: list[str] = []
    try:
        record = json.loads(line, parse_constant=found.append)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and bool(found)


_WITHOUT_NAN = (
    "import json, sys; [print(json.dumps(json.loads(each, parse_constant=lambda name: None))) "
    "for each in sys.stdin if each.strip()]"
)
_FAULTS: tuple[tuple[Callable[[bytes], bool], str, str], ...] = (
    (
        _is_string,
        "each line is a JSON string, and an object with a text field is needed",
        "jq -c '{text: .}'",
    ),
    (_is_joined, "a line holds several JSON objects, and one object a line is needed", "jq -c ."),
    (
        _has_nan,
        "a line has NaN or Infinity, which is not strict JSON; this writes null for them",
        f"python3 -c {shlex.quote(_WITHOUT_NAN)}",
    ),
)


def _lines_advice(content: bytes, uri: str, compression: Compression) -> str:
    """For content without a record in a line; "" where nothing can be said."""
    first = content.removeprefix(UTF8_BOM).lstrip().partition(b"\n")[0].rstrip()
    if first.startswith(b"{") and first.endswith(b"},"):
        command = convert(uri, UNPACK[compression], "sed 's/,[[:space:]]*$//'", lines_name("lines", uri))
        return f"a line ends in a comma, as in a JSON array, and one object a line is needed: {command}"
    if first.startswith(b"{'"):
        command = convert(uri, UNPACK[compression], f"python3 -c {shlex.quote(_FROM_PYTHON)}", lines_name("lines", uri))
        return f"a line is a dictionary of Python, in single quotes, and JSON is needed: {command}"
    if first != b"{":
        return ""
    command = convert(uri, UNPACK[compression], "jq -c .", lines_name("lines", uri))
    return f"a JSON object goes over several lines, and one object a line is needed: {command}"


def _envelope(content: bytes) -> str | None:
    """The name of the list that holds all records of a file, as in `{"data": [{...}, {...}]}`."""
    content = content.removeprefix(UTF8_BOM).strip()
    try:
        record = orjson.loads(content) if content.startswith(b"{") and content.endswith(b"}") else None
    except orjson.JSONDecodeError:
        record = None
    if record is None:  # cut, or several lines of JSON
        begin = _ENVELOPE.match(content)
        is_pretty = begin is not None and b"\n" in begin[0] and b"\n}\n{" not in content
        return begin[1].decode() if begin and is_pretty and begin[1] not in _CHATS else None
    if not isinstance(record, dict) or _find_chat(record) is not None:
        return None
    inside = {
        name: sum(len(text) for item in items for _, text in _strings(item, "", 0))
        for name, items in record.items()
        if isinstance(items, list) and items and all(isinstance(item, dict) for item in items)
    }
    most = max(inside, key=inside.__getitem__, default=None)
    outside = sum(len(text) for _, text in _strings(record, "", 0))
    return most if most is not None and inside[most] > outside else None


def did_you_mean(fields: list[str]) -> str:
    """The question, for fields in order of likelihood; at least one."""
    *first, last = fields[:_MOST_SHOWN]
    return f"did you mean source.textField: {', '.join(first)}{', or ' if first else ''}{last}?"


def first_records(content: bytes) -> Iterator[dict[str, object]]:
    """The objects among the first lines of a file."""
    for line in first_lines(content, _MOST_RECORDS):
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(record, dict):
            yield record


def _strings(value: dict[str, object], prefix: str, depth: int) -> Iterator[tuple[str, str]]:
    """Every string below `value` with its dotted path; below an object, names with a dot in them have none."""
    for name, item in value.items():
        if not name or ("." in name and prefix):
            continue
        if isinstance(item, str):
            yield prefix + name, item
        elif isinstance(item, dict) and "." not in name and depth < _MOST_DEPTH:
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
    command = convert(uri, UNPACK[compression], f"python3 -c {shlex.quote(join)}", lines_name("text", uri))
    return (
        f"{field} is a list of chat messages, and a record needs one text: join them as your model expects them, for "
        f"example: {command}"
    )
