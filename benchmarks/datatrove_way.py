"""datatrove's way: JsonlReader and DocumentTokenizer under its local executor. Runs in an environment of its own.

    python benchmarks/datatrove_way.py --tokenizer tokenizer.json --eos '<|endoftext|>' --workers 2 --source DIR \
        --output DIR

As its documentation has it: one task a file, one worker a process, tokens of the HF `tokenizers` library, the
delimiter after each document. In its favour: documents are not shuffled inside their file (the default copies all
tokens a second time). Asked of everybody here: the outputs are made durable.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--eos", required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()

    from datatrove.executor import LocalPipelineExecutor  # type: ignore[import-not-found]
    from datatrove.pipeline.readers import JsonlReader  # type: ignore[import-not-found]
    from datatrove.pipeline.tokens import DocumentTokenizer  # type: ignore[import-not-found]

    tokens = options.output / "tokens"
    LocalPipelineExecutor(
        pipeline=[
            JsonlReader(str(options.source), glob_pattern="*.jsonl.zst"),
            DocumentTokenizer(
                output_folder=str(tokens),
                tokenizer_name_or_path=str(options.tokenizer),
                eos_token=options.eos,
                shuffle_documents=False,
            ),
        ],
        tasks=len(list(options.source.glob("*.jsonl.zst"))),
        workers=options.workers,
        logging_dir=str(options.output / "logs"),
    ).run()
    for path in tokens.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
