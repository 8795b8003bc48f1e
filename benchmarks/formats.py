"""A job that writes the four flat formats at once beside the same job with Npy alone, whole processes, in turns.

    python benchmarks/formats.py                                   # a corpus from Python's own sources
    python benchmarks/formats.py --corpus FOLDER_OF_JSONL_ZST

Every second pair goes backwards; each job runs once before any pair counts. Both jobs must write the same `.npy` files,
byte for byte. A ratio of speeds is Npy's seconds over those of four formats, of one pair; the median counts. Prints
Markdown, and exits with 1 where a ratio is below the bar.
"""

from __future__ import annotations

import sys

from paired_jobs import Job, Pair, main
from versions import digest

PAIR = Pair(
    Job("Npy", ["output.formats=[Npy]"], digest),
    Job(
        "Npy, Raw, LlmC, Megatron",
        ["output.formats=[Npy, Raw, LlmC, Megatron]"],
        lambda output: digest(output / "npy"),
    ),
    bar=0.9,
)


if __name__ == "__main__":
    sys.exit(main([PAIR], "formats", __doc__))
