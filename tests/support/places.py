"""Where tests find the checkout and what lies in it."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
TESTS = CHECKOUT / "tests"
RELEASED = TESTS / "data"
"""What earlier releases wrote."""
PROGRAMS = TESTS / "support" / "programs"
