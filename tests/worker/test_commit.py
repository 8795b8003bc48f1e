"""Who may write what: the first writer, and those who come later."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from tokenization_worker.commit import place
from tokenization_worker.storage.base import Upload
from tokenization_worker.storage.local import LocalStore


def test_place_creates_again_where_the_other_writer_took_its_own_back(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    theirs = tmp_path / "a"
    attempts = count(1)

    def write(upload: Upload) -> None:
        """The other writer is there first, and has gone before this one replaces what it made."""
        attempt = next(attempts)
        assert attempt <= 3
        if attempt == 1:
            theirs.write_bytes(b"theirs")
        else:
            theirs.unlink(missing_ok=True)
        upload.write(b"ours")

    place(store, "a", write, is_same=lambda found: False, allow_replace=lambda: None)
    assert store.read("a") == b"ours"
