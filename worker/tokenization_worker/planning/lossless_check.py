"""Checks that text can be decoded from its tokens, and refuses a tokenizer that loses text.

A pattern that does not cover the text is the usual cause: what it does not match is in no token, and nothing that is
written later shows it. So tokens are turned back into bytes, where they stand for bytes at all: of a text with many
kinds of characters, of the plan's sampled documents and, for a pattern of one's own, of nearly every code point. What
a text loses may depend on what stands beside it: so a run looks at its documents, too (`encode`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenization_worker.api.data import TokenizerSpec
from tokenization_worker.errors import SpecError
from tokenization_worker.events import Warned, Watcher
from tokenization_worker.output.ledger.version_samples import SampledText
from tokenization_worker.planning.check_events import reporting_record
from tokenization_worker.planning.encoded_sample import EncodedSample
from tokenization_worker.tokenizers.base import KillsEngine, Tokenizer
from tokenization_worker.tokenizers.checks.behaviour import behaviour_of
from tokenization_worker.tokenizers.fingerprint import CHECK_TEXT, encode_check_text
from tokenization_worker.tokenizers.restoring import show_loss


def require_text_kept(
    spec: TokenizerSpec, tokenizer: Tokenizer, documents: Sequence[SampledText], watch: Watcher
) -> None:
    """Raise `SpecError("TokenizerLosesText")` for a text whose tokens are not its bytes; tell of unknown text."""
    _warn_of_unknown(tokenizer, documents, watch)
    if tokenizer.removes:
        watch(Warned(f"{tokenizer.name}: {tokenizer.removes}"))
    if tokenizer.drop is not None:
        for document in documents:
            try:
                left = tokenizer.drop(document.text)
            except KillsEngine:
                continue  # the run finds it, too
            if left != document.text:
                raise loses_text(spec, tokenizer, f"a document of {document.uri}", document.text, left.encode())
    restore = tokenizer.restore
    if restore is None:
        return
    for document in documents:
        kept = restore(document.tokens.tolist())
        if kept != document.text.encode():
            raise loses_text(spec, tokenizer, f"a document of {document.uri}", document.text, kept)
    tried = [(CHECK_TEXT, encode_check_text(tokenizer.reference))]
    if spec.pattern is not None:
        lost = behaviour_of(tokenizer, reporting_record(tokenizer, watch)).lost
        tried.append((lost, tokenizer.reference.encode([lost]).ids))
    for text, ids in tried:
        if ids is None:
            continue
        kept = restore(ids.tolist())
        if kept != text.encode():
            raise loses_text(spec, tokenizer, "a text that was tried", text, kept)


def warn_of_refused(tokenizer: Tokenizer, encoded: Sequence[tuple[str, EncodedSample]], watch: Watcher) -> None:
    """Warn of sampled documents that the tokenizer cannot encode; `encoded` has each file's URI and sample."""
    holding = [(uri, sample) for uri, sample in encoded if sample.refused]
    if not holding:
        return
    refused = sum(len(sample.refused) for _, sample in holding)
    untried = sum(sample.untried for _, sample in encoded)
    sampled = refused + untried + sum(len(sample.texts) for _, sample in encoded)
    least = "at least " if untried else ""
    uri, first = holding[0]
    watch(
        Warned(
            f"{tokenizer.name} cannot encode {least}{refused} of {sampled} sampled documents, the first is in {uri}: "
            f"{first.refused[0]}; a run quarantines such documents"
        )
    )


def loses_text(spec: TokenizerSpec, tokenizer: Tokenizer, where: str, text: str, kept: bytes) -> SpecError:
    """The error for a text of which only `kept` comes back; `where` says what text it is."""
    was, now = show_loss(text, kept)
    name = tokenizer.name
    if spec.pattern is None:
        return SpecError(
            "TokenizerLosesText",
            f"tokenizer.{'uri' if spec.uri else 'name'}: {name} loses text: {was!r} in {where} is decoded from its "
            f"tokens as {now!r}",
            next_step="its pre-tokenizer or its vocabulary leaves characters out: give the model's original file, or "
            "train it again with an unknown token (unk_token) or with byte_fallback",
        )
    return SpecError(
        "TokenizerLosesText",
        f"tokenizer.pattern: {spec.pattern!r} does not cover all text: {was!r} in {where} is decoded from its tokens "
        f"as {now!r}",
        next_step="write the pattern as the model's own code does, or add at its end what matches all other text: "
        r"|\s|\S",
    )


def _warn_of_unknown(tokenizer: Tokenizer, documents: Sequence[SampledText], watch: Watcher) -> None:
    """Warn of text that the vocabulary lacks: its token says only that something was there."""
    if tokenizer.unknown_id is None or not documents:
        return
    holding = [each for each in documents if np.any(each.tokens == tokenizer.unknown_id)]
    if not holding:
        return
    tokens = sum(len(each.tokens) for each in documents)
    unknown = sum(int(np.count_nonzero(each.tokens == tokenizer.unknown_id)) for each in documents)
    watch(
        Warned(
            f"{tokenizer.name} has no token for some text: {len(holding)} of {len(documents)} sampled documents hold "
            f"the unknown token, id {tokenizer.unknown_id} ({unknown / tokens:.2%} of their tokens), the first is in "
            f"{holding[0].uri}; that text cannot be recovered from the tokens"
        )
    )
