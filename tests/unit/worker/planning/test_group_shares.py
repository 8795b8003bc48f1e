"""Shares of groups: which documents they take, and how those are found that follow from tokens."""

from __future__ import annotations

from fractions import Fraction
from hashlib import blake2b

from hypothesis import given
from hypothesis import strategies as st

from tokenization_worker.api.data import hash_end
from tokenization_worker.planning.groups.shares import is_in_share, round_down
from tokenization_worker.planning.splits import hash_of

SHARES = st.fractions(min_value=Fraction(1, 2**40), max_value=1).filter(lambda share: 0 < share < 1)


@given(SHARES)
def test_a_share_is_rounded_down_to_twelve_significant_bits(share: Fraction) -> None:
    rounded = round_down(share)
    assert rounded <= share < rounded * (1 + Fraction(1, 2**11))
    assert rounded.numerator < 2**12
    assert rounded.denominator & (rounded.denominator - 1) == 0
    assert round_down(rounded) == rounded


@given(st.text(), SHARES, SHARES)
def test_a_document_is_in_if_its_hash_is_below_the_share_of_all(text: str, share: Fraction, other: Fraction) -> None:
    data = text.encode("utf-8", "surrogatepass")
    number = int.from_bytes(blake2b(data, digest_size=8, person=b"tokjob/group/1").digest(), "big")
    assert is_in_share(data, hash_end(share)) == (number < share * 2**64)
    assert is_in_share(data, hash_end(max(share, other))) >= is_in_share(data, hash_end(share))
    assert is_in_share(data, hash_end(Fraction(1)))


def test_the_hash_says_nothing_of_splits() -> None:
    texts = [f"document {number}".encode() for number in range(4000)]
    taken = [text for text in texts if is_in_share(text, hash_end(Fraction(1, 2)))]
    below = sum(hash_of(text) < 2**63 for text in taken)
    assert abs(len(taken) - 2000) < 160
    assert abs(below - len(taken) / 2) < 120
