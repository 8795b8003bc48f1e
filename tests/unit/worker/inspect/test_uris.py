"""A command's output argument means the same place as a job's `output.uri`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenization_worker.errors import SpecError
from tokenization_worker.inspect.uris import absolute_uri


@pytest.mark.parametrize(
    ("uri", "absolute"),
    [
        ("gs://bucket/out", "gs://bucket/out"),
        ("gs://bucket/out//", "gs://bucket/out"),
        ("s3://bucket/out/", "s3://bucket/out"),
        ("/data/out/", "/data/out"),
        ("//data/out", "/data/out"),
        ("file:///data/out", "/data/out"),
        ("out", "HERE/out"),
        ("./out/", "HERE/out"),
        ("~/out", "HOME/out"),
        (Path("out"), "HERE/out"),
    ],
    ids=str,
)
def test_an_output_is_named_as_jobs_name_it(
    uri: str | Path, absolute: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert absolute_uri(uri) == absolute.replace("HERE", str(tmp_path)).replace("HOME", "/home/me")


def test_what_is_neither_a_uri_nor_a_path_is_refused() -> None:
    with pytest.raises(SpecError, match="is neither a URI nor a path"):
        absolute_uri("gs:/bucket/out")
