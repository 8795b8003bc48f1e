"""Stores rarely read objects as compressed JSON. No I/O.

A finished job with its checkpoint and RayJob takes 40 KB as Python objects and 3 KB packed; unpacking one object takes
0.1 ms (2026-11-24).
"""

from __future__ import annotations

import json
import zlib

from tokenization_operator.objects.reading import Object

_LEVEL = 1  # twice as fast as the default, and a tenth larger


def pack(item: Object) -> bytes:
    return zlib.compress(json.dumps(item, separators=(",", ":")).encode(), _LEVEL)


def unpack(packed: bytes) -> Object:
    found: Object = json.loads(zlib.decompress(packed))
    return found
