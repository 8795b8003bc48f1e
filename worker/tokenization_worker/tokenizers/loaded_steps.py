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

TAKES_BLANKS = "some of its added tokens take the blanks beside them"

_REMOVES_BLANKS = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}


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


def has_all_bytes(native: tokenizers.Tokenizer) -> bool:
    """Whether a BPE model has a token for each byte: of byte-level text, or as its fallback."""
    model: Any = native.model
    if has_affixes(native):
        return False
    if model.byte_fallback and all(model.token_to_id(f"<0x{byte:02X}>") is not None for byte in range(256)):
        return True
    is_byte_level = any(step["type"] == "ByteLevel" for step in find_pre_tokenizers(native))
    return is_byte_level and all(model.token_to_id(chr(shown)) is not None for shown in printable_bytes().values())


def leaves_out(step: Step) -> bool:
    """Whether a pre-tokenizer leaves out what it cuts at, whatever that is."""
    return step.get("behavior") == "Removed" or step["type"] == "CharDelimiterSplit"


def take_blanks(added: Sequence[Mapping[str, Any]]) -> bool:
    """Whether some of the added tokens that match in text take the blanks beside them."""
    return any(not token.get("special") and (token.get("lstrip") or token.get("rstrip")) for token in added)


def find_removing(native: tokenizers.Tokenizer, added: Sequence[Mapping[str, Any]]) -> str:
    """What leaves out characters of a text, as the subject and verb of a sentence; "" without any."""
    steps = find_pre_tokenizers(native)
    removing = [step for step in steps if step["type"] in _REMOVES_BLANKS or leaves_out(step)]
    if removing:
        return f"its pre-tokenizer ({join_types(removing)}) drops the characters at which it splits"
    return TAKES_BLANKS if take_blanks(added) else ""


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
