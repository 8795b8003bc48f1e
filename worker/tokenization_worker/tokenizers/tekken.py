"""Recognises Mistral's `tekken.json`, which is not read: the same model's tokenizer.json is."""

from __future__ import annotations

from typing import Any

from tokenization_worker.errors import SpecError


def refuse_tekken(uri: str, document: dict[str, Any]) -> None:
    """Raise `SpecError` (TokenizerInvalid) where the JSON `document` is a vocabulary of Tekken."""
    config, vocabulary = document.get("config"), document.get("vocab")
    if not isinstance(config, dict) or not isinstance(vocabulary, list) or "pattern" not in config:
        return
    of_version = f", version {config['version']}" if isinstance(config.get("version"), str) else ""
    raise SpecError(
        "TokenizerInvalid",
        f"tokenizer.uri: {uri} is a file of Mistral's Tekken{of_version}, expected a tokenizer.json",
        next_step="give the tokenizer.json of the same model, which holds the same tokens: where its repository on the "
        "Hugging Face Hub has one, write tokenizer: {name: hf:mistralai/MODEL}, and leave tokenizer.uri out",
    )
