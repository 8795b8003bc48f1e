"""How a view of a dataset is sent to another process: not its tables, but how to open it there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Reopening: TypeAlias = tuple[Callable[..., T], tuple[object, ...]]
"""A function of a module, and its arguments: what pickle keeps instead of the object."""
