"""`tokjob run` whose workers begin no document before a file is there, for tests that catch a run at work.

    python gated_run.py FILE job.yaml ...

The tokenizer must be `bytes`. Workers are forked and inherit the gate; the driver, which plans, also in a copy of
itself, knows none. Everything else is the product.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tokenization_worker.cli.main import main
from tokenization_worker.engine import local
from tokenization_worker.tokenizers.base import Encoded
from tokenization_worker.tokenizers.byte_engine import ByteEngine


def close_gate(gate: Path) -> None:
    """Let every worker wait for `gate` before it encodes anything."""
    begin, encode = local.begin_worker, ByteEngine.encode
    is_worker = False

    def begin_gated() -> None:
        nonlocal is_worker
        is_worker = True
        begin()

    def wait_and_encode(engine: ByteEngine, texts: Sequence[str]) -> Encoded:
        while is_worker and not gate.exists():
            time.sleep(0.001)
        return encode(engine, texts)

    local.begin_worker = begin_gated  # type: ignore[attr-defined]
    ByteEngine.encode = wait_and_encode  # type: ignore[method-assign]


if __name__ == "__main__":
    close_gate(Path(sys.argv[1]))
    sys.exit(main(["run", *sys.argv[2:]]))
