"""Names below an output that a store itself knows: where its own files are, and where runs show that they go on."""

from __future__ import annotations

OWN = "_tokenization/"
ALIVE = OWN + "alive/"
LEDGER = OWN + "ledger/"
