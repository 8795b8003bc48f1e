"""Tells from the API server's words that admission has refused an object, and not the API server itself. Pure."""

from __future__ import annotations

_WORDS = ("admission webhook", "ValidatingAdmissionPolicy '")
"""How the API server begins what a webhook, or a policy with its binding, has to say."""


def is_of_admission(text: str) -> bool:
    """Whether a webhook or a ValidatingAdmissionPolicy speaks."""
    return any(each in text for each in _WORDS)
