"""What the library made of a tokenizer.json: its model, and the steps that text takes before the model.

Asked of the loaded library, never of the file: the file may leave out a model's type, and the library then chooses one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from tokenization_worker.tokenizers.fast_engine import printable_bytes

if TYPE_CHECKING:
    import tokenizers

Step = Mapping[str, Any]
"""A normalizer or a pre-tokenizer, with its `type` and settings as the library writes them."""

_REMOVES_BLANKS = {"BertPreTokenizer", "UnicodeScripts", "Whitespace", "WhitespaceSplit"}


def find_normalizers(native: tokenizers.Tokenizer) -> list[Step]:
    """The steps that change text before it is cut, in order; none for an empty sequence."""
    return list(_flatten(native.normalizer, "normalizers"))


def find_pre_tokenizers(native: tokenizers.Tokenizer) -> list[Step]:
    """The steps that cut text into the pieces that the model encodes, in order."""
    return list(_flatten(native.pre_tokenizer, "pretokenizers"))


def is_bpe(native: tokenizers.Tokenizer) -> bool:
    return type(native.model).__name__ == "BPE"


def has_affixes(native: tokenizers.Tokenizer) -> bool:
    """Whether a BPE model marks the parts of words: a character's token then depends on its place in the piece."""
    model: Any = native.model
    return bool(model.continuing_subword_prefix or model.end_of_word_suffix)


def is_byte_level(native: tokenizers.Tokenizer) -> bool:
    """Whether text is encoded as characters that stand for its bytes."""
    return any(step["type"] == "ByteLevel" for step in find_pre_tokenizers(native))


def has_all_bytes(native: tokenizers.Tokenizer) -> bool:
    """Whether a model has a token for each byte: of byte-level text, or else, of BPE, as its fallback."""
    model: Any = native.model
    if is_bpe(native) and has_affixes(native):
        return False
    if is_byte_level(native):
        names = [chr(shown) for shown in printable_bytes().values()]
    elif is_bpe(native) and model.byte_fallback:
        names = [f"<0x{byte:02X}>" for byte in range(256)]
    else:
        return False
    return all(model.token_to_id(name) is not None for name in names)


def leaves_out(step: Step) -> bool:
    """Whether a pre-tokenizer may leave out characters that are no white space."""
    return step.get("behavior") == "Removed" or step["type"] in ("CharDelimiterSplit", "UnicodeScripts")


def take_blanks(added: Sequence[Mapping[str, Any]]) -> list[str]:
    """The added tokens that match in text and take the blanks beside them."""
    matching = [token for token in added if not token.get("special")]
    return [token["content"] for token in matching if token.get("lstrip") or token.get("rstrip")]


def find_removing(native: tokenizers.Tokenizer, added: Sequence[Mapping[str, Any]]) -> str:
    """What leaves out white space of a text, as a sentence; "" where nothing does."""
    steps = find_pre_tokenizers(native)
    levels = next((number for number, step in enumerate(steps) if step["type"] == "ByteLevel"), len(steps))
    removing = [step for step in steps[:levels] if step["type"] in _REMOVES_BLANKS or _removes_matches(step)]
    if removing:
        return (
            f"its pre-tokenizer ({join_types(removing)}) drops the characters at which it splits, such as spaces and "
            "line breaks; no token holds them, so code and tables cannot be distinguished from running text"
        )
    if taking := take_blanks(added):
        return f"its added tokens {', '.join(map(repr, taking[:4]))} drop the spaces and line breaks beside them"
    return ""


def _removes_matches(step: Step) -> bool:
    return (step.get("behavior") == "Removed" and not step.get("invert")) or step["type"] == "CharDelimiterSplit"


def join_types(steps: Sequence[Step]) -> str:
    return ", ".join(sorted({str(step["type"]) for step in steps}))


def _flatten(component: Any, below: str) -> Iterator[Step]:
    """A component, or the ones that a sequence holds; nothing for None."""
    if component is not None:
        yield from _members(orjson.loads(component.__getstate__()), below)


def _members(step: Step, below: str) -> Iterator[Step]:
    if step["type"] != "Sequence":
        yield step
        return
    for each in step[below]:
        yield from _members(each, below)
