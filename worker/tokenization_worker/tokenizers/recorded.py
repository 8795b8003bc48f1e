"""The tokenizer that a dataset was made with, from what its index records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenization_worker.api.data import DelimiterPosition, TokenizerSpec
from tokenization_worker.errors import ChangedError
from tokenization_worker.tokenizers.base import Tokenizer
from tokenization_worker.tokenizers.load import load_tokenizer


def recorded_spec(index: Mapping[str, Any]) -> TokenizerSpec:
    """What names the tokenizer of a dataset with this `index.json`; one of the Hub at the commit that its run read."""
    recorded, delimiter = index["run"]["tokenizer"], index["data"]["tokenizer"]["delimiter"]
    is_pair = "begin" in delimiter
    return TokenizerSpec(
        name=recorded["name"],
        uri=recorded["uri"],
        pattern=recorded["pattern"],
        special_tokens=tuple(sorted(recorded["specialTokens"].items())),
        delimiter_token=recorded["beginToken" if is_pair else "delimiterToken"],
        delimiter_position=DelimiterPosition.BEFORE if is_pair else DelimiterPosition(delimiter["position"]),
        revision=recorded.get("revision", ""),
        end_token=recorded["endToken"] if is_pair else None,
    )


def load_recorded(index: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that wrote the tokens of a dataset with this `index.json`.

    Raises `ChangedError("TokenizerChanged")` where what has its name or place now behaves differently; else as
    `load_tokenizer`.
    """
    spec = recorded_spec(index)
    tokenizer = load_tokenizer(spec)
    was = index["tokenizer"]["fingerprint"]
    if tokenizer.fingerprint != was:
        raise ChangedError(
            "TokenizerChanged",
            f"{spec.uri or spec.name} is not the tokenizer that the dataset was made with: its fingerprint was {was}, "
            f"is {tokenizer.fingerprint}",
            next_step="put that tokenizer back",
        )
    return tokenizer
