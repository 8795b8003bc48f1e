"""Jobs that shuffle their documents, or pack them into rows, beside the same job without, whole processes, in turns.

    python benchmarks/sequences.py                                 # a corpus from Python's own sources
    python benchmarks/sequences.py --corpus FOLDER_OF_JSONL_ZST

Every second pair goes backwards; each job runs once before any pair counts. All jobs must write each token equally
often, padding not counted. A ratio of speeds is the seconds of the job without over those of the other one, of one
pair; the median counts. Prints Markdown, and exits with 1 where a ratio is below its bar.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from paired_jobs import Job, Pair, main


def count_tokens(output: Path) -> str:
    """Digest of how often each token occurs in the `.npy` files of `output`, padding not counted."""
    counts = np.zeros(1 << 20, dtype=np.int64)
    index = json.loads((output / "index.json").read_bytes())
    for split in index["splits"]:
        for path in (output / split["name"]).glob("*.npy"):
            counts += np.bincount(np.load(path, mmap_mode="r").reshape(-1), minlength=len(counts))
        if "sequences" in split:
            counts[index["data"]["output"]["sequence"]["pad"]] -= split["sequences"]["padding"]
    return hashlib.sha256(counts.tobytes()).hexdigest()


FLAT = Job("in the order of the source", [], count_tokens)
SHUFFLED = Job("shuffled documents", ["output.shuffle.seed=0"], count_tokens)
PACKED_ROWS = ["output.sequence.length=2048", "output.sequence.packing=BestFit"]
PACKED = Job("rows packed by best fit", PACKED_ROWS, count_tokens)
SHUFFLED_ROWS = Job("packed rows, shuffled", [*PACKED_ROWS, "output.shuffle.seed=0"], count_tokens)
PAIRS = [Pair(FLAT, PACKED, bar=0.85), Pair(FLAT, SHUFFLED, bar=0.75), Pair(FLAT, SHUFFLED_ROWS, bar=0.75)]


if __name__ == "__main__":
    sys.exit(main(PAIRS, "sequences", __doc__))
