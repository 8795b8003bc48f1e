"""Objects of a bucket, as files of a test."""

from __future__ import annotations

from pathlib import Path

from tokenization_worker.storage.open import open_store


def upload(folder: Path, uri: str) -> None:
    """The files of a folder, below `uri`."""
    store = open_store(uri)
    for path in sorted(folder.iterdir()):
        with store.upload(path.name) as target:
            target.write(path.read_bytes())
            target.commit()


def differing_shards(uri: str, expected: Path) -> list[str]:
    """Shards of the split `train` that are missing at `uri`, too many there, or different."""
    store = open_store(uri)
    mine = {entry.path: store.read(entry.path) for entry in store.list("train/")}
    theirs = {str(path.relative_to(expected)): path.read_bytes() for path in expected.glob("train/*.npy")}
    return sorted(path for path in mine.keys() | theirs.keys() if mine.get(path) != theirs.get(path))
