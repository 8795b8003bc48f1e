"""Tells which errors of the library `tokenizers` are the fault of a text, and says them in words.

Its errors have no class of their own: a missing unknown token is a plain `Exception`, and a regular expression that
backtracks too far is a panic of Rust, which is no `Exception`.
"""

from __future__ import annotations

from tokenization_worker.tokenizers.base import HasNoToken, KillsEngine
from tokenization_worker.tokenizers.tiktoken_engine import is_refusal


def blame_text(number: int, error: BaseException) -> KillsEngine | None:
    """The error for text `number`; None where the text is not at fault, such as for Ctrl-C or too little memory."""
    detail = str(error).partition("\n")[0]
    if is_refusal(error):
        if "Onig" in detail:
            return KillsEngine(number, f"the tokenizer.json's pattern backtracks too far: {detail}")
        return KillsEngine(number, f"the package tokenizers cannot encode it: {detail}")
    if isinstance(error, MemoryError) or not isinstance(error, Exception):
        return None
    return HasNoToken(number, f"the package tokenizers cannot encode it: {detail}")
