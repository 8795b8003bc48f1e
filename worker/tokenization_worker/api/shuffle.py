"""The block `output.shuffle`: the order of documents, or of rows, in a dataset."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict

from tokenization_worker.api.data import ShuffleUnit
from tokenization_worker.api.types.model import SpecBlock

_LARGEST_SEED = 2**53 - 1
"""The largest number that every JSON parser keeps."""


class Shuffle(SpecBlock):
    """One uniform order of all documents, or all rows, of a split: the same for every run with this seed."""

    seed: Annotated[int, Strict(), Field(ge=0, le=_LARGEST_SEED)] = Field(
        description=(
            "Which order. Another seed gives another order; the same seed gives the same bytes, on any machine and"
            " with any number of workers."
        ),
        examples=[0],
    )
    unit: ShuffleUnit = Field(
        default=ShuffleUnit.AUTO,
        description=(
            "What is moved as a whole. Row: each row of output.sequence, with all of its pieces. Document: each"
            " document; with output.sequence rows are made of the documents in their new order. Auto: Row with"
            " output.sequence, else Document."
        ),
        examples=["Row"],
    )

    def unit_of(self, *, has_rows: bool) -> ShuffleUnit:
        """The unit that Auto stands for."""
        if self.unit is not ShuffleUnit.AUTO:
            return self.unit
        return ShuffleUnit.ROW if has_rows else ShuffleUnit.DOCUMENT
