"""Quantities, percentages and limits are exact, and everything else is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tokenization_worker.api.types.quantities import Limit, parse_percentage, parse_quantity


@pytest.mark.parametrize(
    ("written", "number"),
    [
        (1, 1),
        (2**62, 2**62),
        ("1", 1),
        ("3Ki", 3072),
        ("64Mi", 67_108_864),
        ("2Gi", 2**31),
        ("1Ti", 2**40),
        ("5k", 5000),
        ("7M", 7_000_000),
        ("1G", 10**9),
        ("2T", 2 * 10**12),
    ],
    ids=str,
)
def test_quantity_is_the_number_it_says(written: int | str, number: int) -> None:
    assert parse_quantity(written) == number


@pytest.mark.parametrize(
    "written",
    [
        0,
        -1,
        "0",
        "0Mi",
        "-1",
        "1.5Gi",
        "64MB",
        "64 Mi",
        "64mi",
        "Mi",
        "",
        "1e6",
        True,
        1.0,
        None,
        "9999999999999Ti",
        "5k\n",
    ],
    ids=repr,
)
def test_what_is_no_quantity_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity(written)  # type: ignore[arg-type]


def test_percentages_are_exact() -> None:
    assert parse_percentage("0.5%") == Fraction(1, 200)
    assert parse_percentage("33.3%") == Fraction(333, 1000)
    assert parse_percentage("0.000000000001%") == Fraction(1, 10**14)
    assert parse_percentage("100%") == 1


@pytest.mark.parametrize("written", ["0.5", "%", "101%", "-1%", "1e1%", ".5%", "5 %", 5, None, "1%\n"], ids=repr)
def test_what_is_no_percentage_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="percentage"):
        parse_percentage(written)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "total", "allowed"),
    [
        (0, 1000, 0),
        (10, 5, 10),
        ("10", 5, 10),
        ("0%", 1000, 0),
        ("0.1%", 999, 0),
        ("0.1%", 1000, 1),
        ("0.1%", 46_002, 46),
        ("100%", 7, 7),
        ("33.3%", 10**15, 333 * 10**12),
    ],
    ids=str,
)
def test_limit_rounds_down(written: int | str, total: int, allowed: int) -> None:
    assert Limit.parse(written).allowed(total) == allowed


@pytest.mark.parametrize("written", [-1, True, 0.1, "-1", "0.1", "10Mi", "200%", None], ids=repr)
def test_what_is_no_limit_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"count|percentage"):
        Limit.parse(written)  # type: ignore[arg-type]
