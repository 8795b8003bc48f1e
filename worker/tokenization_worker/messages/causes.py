"""Walks the chain of causes of an error."""

from __future__ import annotations

from collections.abc import Iterator


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """The error, what caused it, what caused that, and so on; each once, also where they cause each other."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__
