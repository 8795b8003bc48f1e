"""What a person means by the value of a flag of a text field.

A value in quotes is a scalar of YAML, as in a manifest; any other is taken as it was typed, so that `{split}` and
`<|endoftext|>` need no quotes. Nothing is guessed: a backslash that could begin an escape, or a quote that does not
end, is refused with both ways to write it.
"""

from __future__ import annotations

import re

from tokenization_worker.api.manifest.yaml_text import parse_value
from tokenization_worker.errors import SpecError

_NAMED = {"0": 0, "a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "e": 27, '"': 34, "\\": 92}
_ESCAPE = re.compile(r'\\(?:([0abtnvfre"\\])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))')
"""Those of YAML that a person types."""


def read_text(typed: str, *, flag: str, is_expression: bool = False) -> str | None:
    r"""The text that `typed` stands for; None where the field is to be absent.

    `flag`: what stands before the value, with what separates them, such as `--source.textField `. In a regular
    expression (`is_expression`) an escape means the same to every reader, and so does a quote that does not end.
    """
    if typed == "null":
        return None
    quote = typed[:1] if typed[:1] in ("'", '"') else ""
    if is_expression:
        if quote and len(typed) > 1 and isinstance(_scalar(typed), str):
            raise _ambiguous(typed, flag, str(_scalar(typed)), "the text in the quotes")
        return typed
    if quote:
        found = _scalar(typed)
        if isinstance(found, str):
            return found
        if len(typed) > 1 and typed[-1] == quote and _closes_once(typed):
            parse_value(typed, origin=f"{flag}{typed}")  # raises, and says which escape is unknown
        raise SpecError(
            "SpecInvalid",
            f"{flag}{typed}: begins with a quote, but is not a quoted text as in YAML",
            next_step=f"for these characters, quotes included: {flag}{in_shell(typed)}",
        )
    meant = _ESCAPE.sub(_character, typed)
    if meant != typed:
        raise _ambiguous(typed, flag, meant, "the escape")
    return typed


def in_shell(text: str) -> str:
    """`text` as a scalar of YAML in double quotes, quoted for a shell."""
    inner = "".join(_escaped(character) for character in text)
    if "'" in inner:
        return f'"\\"{inner}\\""' if not re.search(r'[$`"\\!]', inner) else "'\"" + inner.replace("'", "\\x27") + "\"'"
    return f"'\"{inner}\"'"


def _ambiguous(typed: str, flag: str, meant: str, words: str) -> SpecError:
    return SpecError(
        "SpecInvalid",
        f"{flag}{typed}: could mean {words}, {_shown(meant)}, or the {len(typed)} characters as they were typed",
        next_step=f"for {words}: {flag}{in_shell(meant)}; for the characters as typed: {flag}{in_shell(typed)}",
    )


def _shown(text: str) -> str:
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _scalar(typed: str) -> object:
    """The value that YAML sees; None where it sees none."""
    try:
        return parse_value(typed, origin="")
    except SpecError:
        return None


def _closes_once(typed: str) -> bool:
    """Whether the last quote is the first one that could end the text."""
    inner = re.sub(r"\\." if typed[0] == '"' else "''", "", typed[1:-1])
    return typed[0] not in inner


def _character(found: re.Match[str]) -> str:
    name, *numbers = found.groups()
    number = _NAMED[name] if name else int(next(each for each in numbers if each), 16)
    return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else found[0]


def _escaped(character: str) -> str:
    for name, number in _NAMED.items():
        if ord(character) == number:
            return f"\\{name}"
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
