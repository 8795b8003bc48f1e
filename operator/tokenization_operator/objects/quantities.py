"""Quantities of Kubernetes (`500m`, `16Gi`), as its own library reads them."""

from __future__ import annotations

from decimal import Decimal

from kubernetes.utils import parse_quantity


def read_quantity(text: str) -> Decimal:
    """Its value in the base unit: cores, bytes, chips."""
    return Decimal(parse_quantity(text))
