"""What docs say of splits by hash and of the plan's sample is what the code does."""

from __future__ import annotations

import re
from fractions import Fraction
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tokenization_worker.api.data import SplitSpec
from tokenization_worker.api.groups import MOST_GROUPS
from tokenization_worker.planning.sampled_files import SAMPLE_BYTES, SAMPLED_BYTES, SAMPLED_FILES, choose_samples
from tokenization_worker.planning.splits import Streams, stream_of
from tokenization_worker.storage.source_file import SourceFile

DOCS = Path(__file__).parents[4] / "docs"


def test_the_documented_rule_chooses_the_split_of_each_text() -> None:
    page = (DOCS / "layout.md").read_text()
    code = page.split("## Which split a document is in")[1].split("```python\n")[1].split("```")[0]
    known: dict[str, Any] = {"Fraction": Fraction, "blake2b": blake2b}
    exec(code, known)
    shares = [("test", Fraction(1, 200)), ("valid", Fraction(1, 3))]
    splits = (*(SplitSpec(name, None, share) for name, share in shares), SplitSpec("the last split", None, None))
    thresholds = Streams(splits).thresholds()
    texts = [f"text ä {number}" for number in range(2000)]
    found = [splits[stream_of(text.encode(), thresholds)].name for text in texts]
    assert found == [known["split_of"](text, shares) for text in texts]
    assert set(found) == {split.name for split in splits}


def test_the_documented_sample_is_that_of_the_plan() -> None:
    words = re.sub(r"\s+", " ", (DOCS / "policy.md").read_text())
    files = [
        SourceFile(f"{group:02d}/{number:03d}", 1, "v", group=f"g{group:02d}")
        for group in range(64)
        for number in range(9)
    ]
    sampled = choose_samples(files)
    assert MOST_GROUPS == 64
    assert f"the beginning of up to {SAMPLED_FILES} files" in words
    assert f"{SAMPLE_BYTES >> 10} KiB of decompressed text from each" in words
    assert f"{SAMPLED_BYTES >> 10} KiB in total" in words
    assert f"at least {len(sampled) // 64} files of each group: of 64 groups up to {len(sampled)} files" in words
    assert f"{len(sampled) * SAMPLE_BYTES >> 20} MiB" in words
    assert len(choose_samples([SourceFile(f"{number:03d}", 1, "v") for number in range(500)])) == SAMPLED_FILES
