"""The block `output.shuffle`: the order of documents in a dataset."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict

from tokenization_worker.api.types.model import SpecBlock

_LARGEST_SEED = 2**53 - 1
"""The largest number that every JSON parser keeps."""


class Shuffle(SpecBlock):
    """One uniform order of all documents of a split: the same for every run with this seed."""

    seed: Annotated[int, Strict(), Field(ge=0, le=_LARGEST_SEED)] = Field(
        description=(
            "Which order. Another seed gives another order; the same seed gives the same bytes, on any machine and"
            " with any number of workers."
        ),
        examples=[0],
    )
