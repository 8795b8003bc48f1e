"""`tokjob run` with an accelerated engine that is wrong about some documents, for tests of epochs.

    python flipping_run.py job.yaml --processes 2 --sample-one-in 64 --gate FILE --gate-after 4 --late-gate FOLDER GLOB

The engine that the loaded tokenizer hands out is wrapped before the run begins; workers are forked and inherit it.
Documents with `FLIP` get one wrong token, documents with `STUTTER` each token 500 times. With a gate every worker's
engine waits after some calls until the file is there, and is slow from then on; with a late gate it waits before the
document with `LATE` until a file of the folder matches. Everything else is the product.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.cli.progress import JsonDisplay
from tokenization_worker.errors import TokenizationError
from tokenization_worker.run.run import Options, run_job
from tokenization_worker.tokenizers.base import Encoded, Engine
from tokenization_worker.tokenizers.load import load_tokenizer

FLIP = "<< one token of this document comes out wrong >>"
STUTTER = "<< every token of this document comes out many times >>"

LATE = "<< and this is the last document that does >>"

SLOW_S = 0.1
"""How much longer a call takes once the gate is open: a range a second would be as good, and tests would be slow."""


class FlippingEngine:
    """Another engine's tokens, but for the documents that ask for a mistake."""

    def __init__(self, engine: Engine, gate: Path | None, gate_after: int, late_gate: tuple[str, str] | None) -> None:
        self.name = engine.name
        self._engine = engine
        self._gate = gate
        self._free_calls = gate_after
        self._late_gate = late_gate

    def encode(self, texts: Sequence[str]) -> Encoded:
        self._free_calls -= 1
        if self._gate is not None and self._free_calls < 0:
            while not self._gate.exists():
                time.sleep(0.001)
            time.sleep(SLOW_S)
        if self._late_gate is not None and any(LATE in text for text in texts):
            while not any(Path(self._late_gate[0]).glob(self._late_gate[1])):
                time.sleep(0.001)
        ids, ends = self._engine.encode(texts)
        parts = np.split(ids, ends[:-1])
        for number, text in enumerate(texts):
            middle = len(parts[number]) // 2
            if FLIP in text:
                parts[number] = parts[number].copy()
                parts[number][middle] ^= 1
            if STUTTER in text:
                parts[number] = np.repeat(parts[number], 500)
        return Encoded(np.concatenate(parts), np.cumsum([len(part) for part in parts]))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--sample-one-in", type=int, default=1)
    parser.add_argument("--gate", type=Path)
    parser.add_argument("--gate-after", type=int, default=0)
    parser.add_argument("--late-gate", nargs=2)
    options = parser.parse_args()
    job = TokenizationJob.from_yaml(options.manifest)
    tokenizer = load_tokenizer(resolve_data(job).tokenizer)
    engine = tokenizer.accelerated()
    assert engine is not None
    tokenizer._accelerated = FlippingEngine(engine, options.gate, options.gate_after, options.late_gate)
    how = Options(processes=options.processes, engine="fastokens", sample_one_in=options.sample_one_in)
    display = JsonDisplay()
    try:
        display(run_job(job, options=how, on_progress=display))
    except TokenizationError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
