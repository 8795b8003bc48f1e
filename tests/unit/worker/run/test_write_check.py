"""The write check asks for what a run does first, and leaves nothing where a command only looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenization_worker.errors import TokenizationError
from tokenization_worker.output import layout
from tokenization_worker.run.write_check import check_writable, check_writable_leaving_nothing
from tokenization_worker.storage.local.store import LocalStore


class Recorded(LocalStore):
    """Notes what is deleted, and whether it existed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.deleted: list[str] = []
        self.existed: list[bool] = []

    def delete(self, path: str) -> None:
        self.deleted.append(path)
        self.existed.append(self.stat(path) is not None)
        super().delete(path)


def test_an_object_is_created_and_removed(tmp_path: Path) -> None:
    store = Recorded(tmp_path)
    check_writable(store)
    assert (store.deleted, store.existed) == ([layout.WRITE_CHECK], [True])
    assert store.stat(layout.WRITE_CHECK) is None


def test_what_an_earlier_check_left_is_no_reason_to_refuse(tmp_path: Path) -> None:
    (tmp_path / layout.WRITE_CHECK).parent.mkdir()
    (tmp_path / layout.WRITE_CHECK).touch()
    check_writable(LocalStore(tmp_path))
    assert not (tmp_path / layout.WRITE_CHECK).exists()


@pytest.mark.parametrize("there", [[], ["out"], ["out/_tokenization"], ["out/train"], ["out/_tokenization/ledger"]])
def test_folders_that_existed_stay_and_others_go(there: list[str], tmp_path: Path) -> None:
    for folder in there:
        (tmp_path / folder).mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    check_writable_leaving_nothing(LocalStore(tmp_path / "out"))
    assert sorted(tmp_path.rglob("*")) == before


def test_folders_above_the_output_go_too_and_a_file_in_them_keeps_its_own(tmp_path: Path) -> None:
    check_writable_leaving_nothing(LocalStore(tmp_path / "a" / "b" / "out"))
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "_tokenization").write_text("a file of this name")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(TokenizationError):
        check_writable_leaving_nothing(LocalStore(tmp_path / "out"))
    assert sorted(tmp_path.rglob("*")) == before
