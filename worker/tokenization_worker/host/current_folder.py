"""The current folder of this process, to which relative paths refer; it may have been deleted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tokenization_worker.errors import SpecError


def find_lost_folder() -> SpecError | None:
    """The error to raise where the current folder does not exist any more; None where it does."""
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return SpecError(
            "SpecInvalid",
            "the current folder does not exist any more",
            next_step="cd to a folder that exists (to the same path, if the folder was created again)",
        )
    return None


@contextmanager
def needing_current_folder() -> Iterator[None]:
    """Raise `SpecError` where something inside is not found, and the current folder is gone."""
    try:
        yield
    except FileNotFoundError as error:
        lost = find_lost_folder()
        if lost is None:
            raise
        raise lost from error
