"""Commands that a message shows, as a shell takes them."""

from __future__ import annotations

import shlex


def tokjob(*words: str) -> str:
    """`tokjob verify '/data/my corpus'`: this program's command of these words."""
    return shlex.join(("tokjob", *words))
