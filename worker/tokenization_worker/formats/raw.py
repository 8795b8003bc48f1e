"""Raw tokens, little-endian, without a header: what nanoGPT loads with `np.memmap(path, dtype=np.uint16)`.

The file says neither how many tokens it has nor of which type; `index.json` does.
"""

from __future__ import annotations

from tokenization_worker.formats.flat import FlatFormat

RAW = FlatFormat(".bin", lambda shape: b"")
