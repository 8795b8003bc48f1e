"""A job that shuffles its documents beside the same job without a shuffle, whole processes, in turns.

    python benchmarks/sequences.py                                 # a corpus from Python's own sources
    python benchmarks/sequences.py --corpus FOLDER_OF_JSONL_ZST

Every second pair goes backwards; each job runs once before any pair counts. Both jobs must write each token equally
often. A ratio of speeds is the seconds without a shuffle over those with one, of one pair; the median counts. Prints
Markdown, and exits with 1 where a ratio is below the bar.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
from paired_jobs import Job, Pair, main


def count_tokens(output: Path) -> str:
    """Digest of how often each token occurs in the `.npy` files of `output`."""
    counts = np.zeros(1 << 20, dtype=np.int64)
    for path in output.rglob("*.npy"):
        counts += np.bincount(np.load(path, mmap_mode="r"), minlength=len(counts))
    return hashlib.sha256(counts.tobytes()).hexdigest()


PAIR = Pair(
    Job("in the order of the source", [], count_tokens),
    Job("shuffled documents", ["output.shuffle.seed=0"], count_tokens),
    bar=0.75,
)


if __name__ == "__main__":
    sys.exit(main(PAIR, "sequences", __doc__))
