"""The next version that tests of upgrades install is made of this tree's own texts: they must still be there."""

from __future__ import annotations

from e2e.next_version import make_next_version, version_of
from support.places import CHECKOUT


def test_a_next_version_can_be_made_of_this_tree() -> None:
    before, after = version_of(CHECKOUT), version_of(make_next_version())
    assert int(after.split(".")[1]) == int(before.split(".")[1]) + 1
