"""Every file has one name: the ways to write a place lead to one URI, and no document is in a dataset twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.corpus import json_lines
from support.engine.inline import inline
from support.runs import make_job, read_index
from support.stores.hub_fake import FakeHub, hub
from tokenization_worker.api.keys import run_key
from tokenization_worker.api.resolve import resolve_uri
from tokenization_worker.errors import SpecError
from tokenization_worker.events import Event, Warned
from tokenization_worker.planning.prepare import prepare
from tokenization_worker.run.run import run_job
from tokenization_worker.storage.schemes import plain_path
from tokenization_worker.storage.sources import list_source

__all__ = ["hub"]

SPELLINGS = {
    "two-slashes-first": "/{path}",
    "many-slashes-first": "///{path}",
    "slashes-within": "{folder}//{name}",
    "a-dot": "{folder}/./{name}",
    "up-and-down": "{folder}/../src/{name}",
    "a-slash-at-the-end": "{path}/",
    "a-uri": "file://{path}",
    "a-uri-with-two-slashes": "file:///{path}",
    "a-uri-with-a-dot": "file://{folder}/./{name}",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "src" / "a.jsonl"
    path.parent.mkdir()
    path.write_bytes(json_lines(["one", "two"]))
    return path


def spell(spelling: str, path: Path) -> str:
    return spelling.format(path=path, folder=path.parent, name=path.name)


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_a_local_file_is_read_once_however_it_is_written(spelling: str, file: Path, tmp_path: Path) -> None:
    uris = [str(file), spell(spelling, file)]
    run_job(make_job(file, tmp_path / "out", source={"uris": uris}, tokenizer={"name": "bytes"}), executor=inline())
    assert read_index(tmp_path / "out")["conservation"]["read"] == 2


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_all_spellings_have_the_keys_of_the_plain_path(spelling: str, file: Path, tmp_path: Path) -> None:
    """Which were the same before there was one form for all."""
    jobs = [
        make_job(file, tmp_path / "out", source={"uris": [uri]}, tokenizer={"name": "bytes"})
        for uri in (str(file), spell(spelling, file))
    ]
    assert len({run_key(job) for job in jobs}) == 1
    assert len({prepare(job).data_key for job in jobs}) == 1


@pytest.mark.parametrize(
    "uri", ["/d/a.jsonl", "/d/*.jsonl", "/d/**/a*", "/", "gs://b/a//b/./c/../d", "s3://b//a", "hf://datasets/o/n/d/*"]
)
def test_what_is_in_its_one_form_already_stays(uri: str) -> None:
    assert resolve_uri(uri) == uri


@pytest.mark.parametrize(
    ("uri", "form"),
    [
        ("hf://datasets/o/n//d///a", "hf://datasets/o/n/d/a"),
        ("hf://datasets/o/n@v1/./d/a", "hf://datasets/o/n@v1/d/a"),
        ("hf://datasets/o/n/d//", "hf://datasets/o/n/d/"),
        ("//d/*//x", "/d/*/x"),
    ],
)
def test_what_means_the_same_has_one_form(uri: str, form: str) -> None:
    assert resolve_uri(uri) == form


@pytest.mark.parametrize("uri", ["file://localhost/d/a", "FILE:///d/a", "GS://bucket/a", "file:/d/a", "file://d/a"])
def test_what_could_be_read_in_two_ways_is_refused(uri: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="file:///path"):
        make_job(tmp_path, tmp_path / "out", source={"uris": [uri]})


@pytest.mark.parametrize("uri", ["//d/a", "////d/a", "file:////d/a"])
def test_commands_know_places_by_that_form_as_well(uri: str) -> None:
    assert str(plain_path(uri)) == "/d/a"


def test_a_file_on_the_hub_is_read_once_whatever_names_its_commit(hub: FakeHub) -> None:
    commit = hub.commit("org/name", {"data/a": b"1", "data/b": b"2"})
    hub.refs["org/name", "v1"] = commit
    root = "hf://datasets/org/name"
    files = list_source((f"{root}/data/*", f"{root}@main/data/a", f"{root}@v1/data", f"{root}@{commit}/data/b"))
    assert [file.uri for file in files] == [f"{root}/data/a", f"{root}/data/b"]


def test_files_of_two_commits_are_two_files(hub: FakeHub) -> None:
    hub.refs["org/name", "v1"] = hub.commit("org/name", {"a": b"1"})
    hub.commit("org/name", {"a": b"2"})
    root = "hf://datasets/org/name"
    assert [file.uri for file in list_source((f"{root}/a", f"{root}@v1/a"))] == [f"{root}/a", f"{root}@v1/a"]


@pytest.mark.parametrize("link", [os.link, os.symlink], ids=["hard", "symbolic"])
def test_a_file_behind_two_names_is_two_files_and_a_warning(link: object, file: Path, tmp_path: Path) -> None:
    assert callable(link)
    link(file, file.with_name("b.jsonl"))
    file.with_name("c.jsonl").write_bytes(file.read_bytes())  # a copy: nobody can know whether it is meant
    events: list[Event] = []
    job = make_job(file.parent, tmp_path / "out", tokenizer={"name": "bytes"})
    run_job(job, executor=inline(), on_progress=events.append)
    [warning] = [event.message for event in events if isinstance(event, Warned)]
    assert "source files that are links to other source files: 1" in warning
    assert f"{file.with_name('b.jsonl')} is also {file}" in warning
    assert "documents twice" in warning
    assert read_index(tmp_path / "out")["conservation"]["read"] == 6
