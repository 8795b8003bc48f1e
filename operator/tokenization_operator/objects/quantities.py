"""Kubernetes quantities (`500m`, `16Gi`), parsed by the official library."""

from __future__ import annotations

from decimal import Decimal

from kubernetes.utils import parse_quantity


def read_quantity(text: str) -> Decimal:
    """The value in the base unit: cores, bytes, chips."""
    return Decimal(parse_quantity(text))
