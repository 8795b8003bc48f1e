"""Limits the length of messages in a status. Pure.

A status stays below 16 KiB: its message appears in several conditions too, and five failures are kept.
"""

from __future__ import annotations

from tokenization_worker.messages.redact import redact

MOST = 1024
_GAP = " ... "


def join(*sentences: str) -> str:
    """Join sentences into one line. Foreign messages may end with a full stop; ours do not."""
    ended = [text if text.endswith((".", "?", "!")) else f"{text}." for text in sentences[:-1] if text]
    return " ".join([*ended, sentences[-1]])


def shorten(text: str, most: int = MOST) -> str:
    """Keep the beginning, which says what happened, and the end, which says what to do. Redacts secrets in
    addresses."""
    text = redact(text)
    if len(text) <= most:
        return text
    end = most // 3
    return text[: most - end - len(_GAP)] + _GAP + text[-end:]
