"""Which release is the neighbour of a version, on a real node (`e2e/version_before.py`)."""

from __future__ import annotations

import pytest

from e2e.version_before import choose_tag


@pytest.mark.parametrize(
    ("version", "tags", "chosen"),
    [
        ("0.3.0", ["v0.2.0", "v0.2.10", "v0.2.9", "v0.1.0"], "v0.2.10"),
        ("0.3.1", ["v0.3.0", "v0.2.0", "v1.2.0"], "v0.2.0"),
        ("0.2.0", ["v0.1.0"], None),
        ("0.10.0", ["v0.9.1", "v0.1.0"], "v0.9.1"),
        ("0.3.0", ["v0.2.0-rc1", "w0.2.0"], None),
        ("1.0.0", ["v0.9.0"], None),
        ("0.3.0", [], None),
    ],
)
def test_the_newest_release_of_the_minor_version_before_is_chosen(
    version: str, tags: list[str], chosen: str | None
) -> None:
    assert choose_tag(version, tags) == chosen
