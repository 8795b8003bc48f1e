"""A training without a text says what took its documents."""

from __future__ import annotations

import pytest

from tokenization_worker.api.resolve import RunLimits
from tokenization_worker.api.types.quantities import Limit
from tokenization_worker.errors import DataError
from tokenization_worker.pipelines.train.totals import Totals, require_usable


@pytest.mark.parametrize(
    ("held_out", "left_out", "words", "step"),
    [
        (0, 5, "the shares of source.groups leave out all 5 documents", "raise the share of a group"),
        (5, 0, "5 held out, 0 left out by the shares of groups", "needs holdout: 0%"),
        (2, 3, "2 held out, 3 left out by the shares of groups", "needs holdout: 0%"),
    ],
)
def test_what_took_all_documents_is_named(held_out: int, left_out: int, words: str, step: str) -> None:
    totals = Totals(0, held_out, left_out, {}, 10, 0, 0, "")
    with pytest.raises(DataError, match="NoDocuments") as caught:
        require_usable(totals, RunLimits(Limit(0, None), Limit(0, None), 1))
    assert words in caught.value.message
    assert step in caught.value.next_step
