"""The counts of a slice in a receipt: what groups and truncation add is there with them alone."""

from __future__ import annotations

from tokenization_worker.output.ledger.receipts import SliceResult
from tokenization_worker.pipelines.tokenize.ranges.slice_counts import SliceCounts
from tokenization_worker.readers.document_batch import FileSlice


def counted(left_out: int | None) -> SliceResult:
    counts = SliceCounts(0, FileSlice(3, "a.jsonl", 10, "1"), 2)
    counts.records = 7
    counts.left_out = left_out
    return counts.result()


def test_a_slice_without_a_share_has_the_record_and_the_digest_of_before() -> None:
    whole = counted(None)
    assert "leftOut" not in whole.to_dict()
    assert whole.digest == "430c92e6266feb764100ef5a4afe12c4"
    assert (whole.documents_read, whole.left_out or 0) == (0, 0)


def test_what_a_share_leaves_out_is_recorded_and_in_the_digest() -> None:
    digests = {counted(left_out).digest for left_out in (None, 0, 5)}
    assert len(digests) == 3
    result = counted(5)
    assert result.to_dict()["leftOut"] == 5
    assert SliceResult.from_dict(result.to_dict()) == result
    assert result.documents_read == 5


def test_what_is_cut_off_is_recorded_and_in_the_digest() -> None:
    whole = counted(None)
    assert "truncated" not in whole.to_dict()
    found = []
    for tokens in (4, 5):
        counts = SliceCounts(0, FileSlice(3, "a.jsonl", 10, "1"), 2)
        counts.records = 7
        counts.truncated[1] = tokens
        found.append(counts.result())
    assert len({result.digest for result in (whole, *found)}) == 3
    assert found[0].to_dict()["truncated"] == (0, 4)
    assert SliceResult.from_dict(found[0].to_dict()) == found[0]
