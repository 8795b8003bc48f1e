"""How long the words of a status may be. Decides; does no I/O.

A status stays below 16 KiB: its message stands in several conditions, too, and those of five failures are kept.
"""

from __future__ import annotations

from tokenization_worker.messages.redact import redact

MOST = 1024
_GAP = " ... "


def join(*sentences: str) -> str:
    """Sentences in one line: others' words bring their own ends, and ours have none."""
    ended = [text if text.endswith((".", "?", "!")) else f"{text}." for text in sentences[:-1] if text]
    return " ".join([*ended, sentences[-1]])


def shorten(text: str, most: int = MOST) -> str:
    """With the beginning, which says what happened, and the end, which says what to do; no secret of an address."""
    text = redact(text)
    if len(text) <= most:
        return text
    end = most // 3
    return text[: most - end - len(_GAP)] + _GAP + text[-end:]
