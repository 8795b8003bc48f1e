"""Corpora that several test modules read; made once a session, never written to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import runs
from corpus import Corpus, mixed_corpus, one_large_file, tiny_files


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("corpora")


@pytest.fixture(scope="session")
def mixed(corpora: Path) -> Corpus:
    return mixed_corpus(corpora / "mixed")


@pytest.fixture(scope="session")
def large_file(corpora: Path) -> Corpus:
    return one_large_file(corpora / "large-file")


@pytest.fixture(scope="session")
def tiny(corpora: Path) -> Corpus:
    return tiny_files(corpora / "tiny")


@pytest.fixture(autouse=True)
def _nothing_outlives_its_test() -> Iterator[None]:
    yield
    runs.kill_all()
