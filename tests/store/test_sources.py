"""The source: which files patterns mean, in which order, and their bytes; on local disks and in buckets."""

from __future__ import annotations

import base64
import io
import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import pytest

from support.permissions import open_folder, without_root
from support.runs import make_job
from support.stores.gcs_emulator import gcs_bucket, gcs_host  # noqa: F401  fixtures
from support.stores.gcs_fake import FakeGcs, Fault
from support.stores.hub_fake import hub  # noqa: F401  fixture
from support.stores.s3_server import put_s3, s3_bucket, s3_host  # noqa: F401  fixtures
from tokenization_worker.errors import ChangedError, SpecError, TemporaryError
from tokenization_worker.events import Warned
from tokenization_worker.planning.prepare import prepare
from tokenization_worker.storage.base import NotFound
from tokenization_worker.storage.gcs.client import RETRY
from tokenization_worker.storage.gcs.source import GcsSource
from tokenization_worker.storage.gcs.store import GcsStore
from tokenization_worker.storage.patterns import Pattern
from tokenization_worker.storage.prefetch import FIRST_BYTES
from tokenization_worker.storage.source_file import Changed
from tokenization_worker.storage.sources import closed_folders, list_source, open_source, open_unchanged, read_uri

# The client library leaves the connection of a download that failed to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

TREE = [
    "a.jsonl",
    "b.jsonl",
    "Z.jsonl",
    "a-b.jsonl",
    "ä.jsonl",
    "10.txt",
    "9.txt",
    "_SUCCESS",
    ".hidden.jsonl",
    "deep/a.jsonl",
    "deep/er/b.jsonl",
    "deep/er/c.txt",
    "deep/_temporary/x.jsonl",
    "deep/.git/y.jsonl",
    "deep.jsonl",
    "_kept/k.jsonl",
    "[ab]?.jsonl",
]


@dataclass(frozen=True)
class Tree:
    """A place with files; `put` writes one."""

    root: str
    put: Callable[[str, bytes], None]

    def list(self, *patterns: str) -> list[str]:
        """Names below the root that the patterns mean."""
        files = list_source(tuple(f"{self.root}/{pattern}".rstrip("/") for pattern in patterns))
        return [file.uri.removeprefix(f"{self.root}/") for file in files]


def put_local(root: Path) -> Callable[[str, bytes], None]:
    def put(name: str, data: bytes) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)

    return put


def put_gcs(uri: str) -> Callable[[str, bytes], None]:
    store = GcsStore(uri)

    def put(name: str, data: bytes) -> None:
        store.delete(name)
        with store.upload(name) as upload:
            upload.write(data)
            upload.commit()

    return put


@pytest.fixture(params=["local", "gs", "s3", "hf"])
def empty_tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    if request.param == "local":
        return Tree(str(tmp_path), put_local(tmp_path))
    if request.param == "s3":
        bucket = request.getfixturevalue("s3_bucket")
        return Tree(f"s3://{bucket}/corpus", put_s3(request.getfixturevalue("s3_host"), bucket, "corpus/"))
    if request.param == "hf":
        service = request.getfixturevalue("hub")
        return Tree("hf://datasets/org/name", lambda name, data: service.put("org/name", name, data))
    uri = f"gs://{request.getfixturevalue('gcs_bucket')}/corpus"
    return Tree(uri, put_gcs(uri))


@pytest.fixture
def tree(empty_tree: Tree) -> Tree:
    names = list(TREE)
    random.Random(7).shuffle(names)
    for name in names:
        empty_tree.put(name, name.encode())
    return empty_tree


def test_patterns_mean_these_files_in_this_order(tree: Tree) -> None:
    everything = [
        "10.txt",
        "9.txt",
        "Z.jsonl",
        "[ab]?.jsonl",
        "a-b.jsonl",
        "a.jsonl",
        "b.jsonl",
        "deep.jsonl",
        "deep/a.jsonl",
        "deep/er/b.jsonl",
        "deep/er/c.txt",
        "ä.jsonl",
    ]
    top = ["Z.jsonl", "[ab]?.jsonl", "a-b.jsonl", "a.jsonl", "b.jsonl", "deep.jsonl", "ä.jsonl"]
    expected = {
        ("",): everything,
        ("**",): everything,
        ("*.jsonl",): top,
        ("*",): ["10.txt", "9.txt", *top],
        ("**/*.jsonl",): [name for name in everything if name.endswith(".jsonl")],
        ("deep",): ["deep/a.jsonl", "deep/er/b.jsonl", "deep/er/c.txt"],
        ("deep/*",): ["deep/a.jsonl"],
        ("deep/**/*.jsonl",): ["deep/a.jsonl", "deep/er/b.jsonl"],
        ("de*/*/*",): ["deep/er/b.jsonl", "deep/er/c.txt"],
        ("d*p/**",): ["deep/a.jsonl", "deep/er/b.jsonl", "deep/er/c.txt"],
        ("b.jsonl", "a.jsonl"): ["b.jsonl", "a.jsonl"],
        ("b.jsonl", "*.jsonl", "deep", "deep/a.jsonl"): [
            "b.jsonl",
            *(name for name in top if name != "b.jsonl"),
            "deep/a.jsonl",
            "deep/er/b.jsonl",
            "deep/er/c.txt",
        ],
        ("[ab]?.jsonl",): ["[ab]?.jsonl"],
        ("[ab]*",): ["[ab]?.jsonl"],
        ("_SUCCESS",): ["_SUCCESS"],
        (".hidden.jsonl",): [".hidden.jsonl"],
        ("_kept",): ["_kept/k.jsonl"],
        ("_kept/*.jsonl",): ["_kept/k.jsonl"],
        ("deep/_temporary",): ["deep/_temporary/x.jsonl"],
    }
    assert {patterns: tree.list(*patterns) for patterns in expected} == expected


@pytest.mark.parametrize(
    "pattern",
    ["none", "none/*", "*.parquet", "a.jsonl/*", "a.jsonl/b", "dee", "*/_temporary/*", "_S*", "b?jsonl"],
)
def test_a_pattern_that_matches_nothing_is_an_error_that_names_it(tree: Tree, pattern: str) -> None:
    with pytest.raises(SpecError, match="matches no file") as raised:
        tree.list("a.jsonl", pattern)
    assert raised.value.reason == "SourceInvalid"
    assert f"{tree.root}/{pattern}" in raised.value.message


def test_a_trailing_slash_means_the_folder(tree: Tree) -> None:
    folder = [file.uri for file in list_source((f"{tree.root}/deep/",))]
    assert folder == [f"{tree.root}/deep/{name}" for name in ("a.jsonl", "er/b.jsonl", "er/c.txt")]
    with pytest.raises(SpecError, match="matches no file"):
        list_source((f"{tree.root}/a.jsonl/",))


def test_a_file_has_its_size_and_a_version_that_follows_its_content(empty_tree: Tree) -> None:
    empty_tree.put("a", b"one")
    [before] = list_source((f"{empty_tree.root}/a",))
    assert [before] == list_source((f"{empty_tree.root}/*",)) == list_source((empty_tree.root,))
    assert before.size == 3
    empty_tree.put("a", b"two")
    [after] = list_source((f"{empty_tree.root}/a",))
    assert after.version != before.version


def test_a_planned_file_opens_only_as_long_as_it_is_the_same(empty_tree: Tree) -> None:
    empty_tree.put("a", b"one")
    [file] = list_source((f"{empty_tree.root}/a",))
    stream = open_unchanged(file.uri, file.size, file.version)
    assert stream.read() == b"one"
    stream.close()
    empty_tree.put("a", b"longer")
    with pytest.raises(Changed) as raised:
        open_unchanged(file.uri, file.size, file.version)
    assert (raised.value.was, raised.value.now.size) == (file, 6)
    with pytest.raises(NotFound):
        open_unchanged(f"{empty_tree.root}/gone", 1, "")


def test_streams_read_seek_and_end(empty_tree: Tree) -> None:
    empty_tree.put("a", b"0123456789")
    stream = open_source(f"{empty_tree.root}/a")
    assert [stream.read(3), stream.read(0), stream.read(3), stream.tell()] == [b"012", b"", b"345", 6]
    assert [stream.seek(8), stream.read(5), stream.read(5)] == [8, b"89", b""]
    assert [stream.seek(-4, os.SEEK_END), stream.seek(1, os.SEEK_CUR), stream.read(1)] == [6, 7, b"7"]
    assert [stream.seek(2), stream.read()] == [2, b"23456789"]
    assert [stream.seek(99), stream.read(1), stream.read()] == [99, b"", b""]
    stream.close()
    with pytest.raises(ValueError):
        stream.read(1)


def test_small_files_are_read_whole(empty_tree: Tree) -> None:
    empty_tree.put("big enough", b"x" * 3_000_000)
    empty_tree.put("empty", b"")
    assert read_uri(f"{empty_tree.root}/big enough") == b"x" * 3_000_000
    assert read_uri(f"{empty_tree.root}/empty") == b""
    for missing in ("gone", "empty/below"):
        with pytest.raises(NotFound):
            read_uri(f"{empty_tree.root}/{missing}")


@pytest.mark.parametrize("uri", ["ftp://host/a", "az://container/a"])
def test_a_scheme_that_cannot_be_read_is_refused(uri: str) -> None:
    with pytest.raises(SpecError, match="is not supported") as raised:
        list_source((uri,))
    assert raised.value.reason == "SourceInvalid"


# Local disks


def names(root: Path, *patterns: str) -> list[str]:
    return [file.uri.removeprefix(f"{root}/") for file in list_source(tuple(f"{root}/{each}" for each in patterns))]


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A folder with links to a file and to folders outside of it."""
    put = put_local(tmp_path)
    for name in ("real/a", "real/deep/b", "real/_c", "folder/z", "folder/m/x"):
        put(name, b"abc")
    (tmp_path / "folder" / "file").symlink_to(tmp_path / "real" / "a")
    (tmp_path / "folder" / "below").symlink_to(tmp_path / "real")
    (tmp_path / "named").symlink_to(tmp_path / "real")
    return tmp_path


def test_links_are_followed_and_what_is_behind_them_has_the_name_it_was_reached_by(linked: Path) -> None:
    everything = ["folder/below/a", "folder/below/deep/b", "folder/file", "folder/m/x", "folder/z"]
    assert names(linked, "folder") == names(linked, "folder/**") == everything
    assert names(linked, "folder/*/*") == ["folder/below/a", "folder/m/x"]
    assert names(linked, "*/deep/*") == ["named/deep/b", "real/deep/b"]
    assert names(linked, "named") == ["named/a", "named/deep/b"]


@pytest.mark.parametrize("target", [".", "..", "deep", "/"], ids=["itself", "parent", "itself-by-link", "root"])
def test_a_link_in_a_circle_is_refused_by_name(tmp_path: Path, target: str) -> None:
    put_local(tmp_path)("corpus/deep/a", b"abc")
    (tmp_path / "corpus" / "deep" / "back").symlink_to(tmp_path if target == "/" else tmp_path / "corpus" / target)
    for pattern in ("corpus", "corpus/**", "**/a"):
        with pytest.raises(SpecError, match=r"deep/back.* form a cycle") as raised:
            names(tmp_path, pattern)
        assert raised.value.reason == "SourceInvalid"
        assert "narrow source.uris" in raised.value.next_step
    assert names(tmp_path, "corpus/*/a", "*/deep/a") == ["corpus/deep/a"]


@pytest.mark.parametrize("kind", ["dangling", "circular", "pipe"])
def test_what_is_matched_and_is_no_file_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    put_local(tmp_path)("corpus/a.jsonl", b"abc")
    path = tmp_path / "corpus" / "x.jsonl"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("none" if kind == "dangling" else path)
    for pattern in ("corpus", "corpus/*.jsonl", "**/*.jsonl", "corpus/x.jsonl"):
        with pytest.raises(SpecError, match=re.escape(str(path))) as raised:
            names(tmp_path, pattern)
        assert raised.value.reason == "SourceInvalid"
        assert "narrow source.uris" in raised.value.next_step
    assert names(tmp_path, "corpus/a*") == ["corpus/a.jsonl"]


def test_a_file_that_became_a_pipe_since_it_was_listed_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    os.mkfifo(path)
    other_end = os.open(path, os.O_RDWR)
    try:
        with pytest.raises(SpecError, match=f"{re.escape(str(path))} is a pipe"):
            open_source(str(path))
    finally:
        os.close(other_end)


def test_a_link_to_a_folder_that_is_gone_is_refused_where_it_would_be_entered(tmp_path: Path) -> None:
    put_local(tmp_path)("corpus/2024/a.jsonl", b"abc")
    (tmp_path / "corpus" / "2025").symlink_to(tmp_path / "not-mounted")
    with pytest.raises(SpecError, match=r"2025 is a link to .*not-mounted, which does not exist"):
        names(tmp_path, "corpus/*/*.jsonl")
    assert names(tmp_path, "corpus/*4/*.jsonl") == ["corpus/2024/a.jsonl"]


def test_folders_that_no_match_can_lie_in_are_not_read() -> None:
    with open_folder() as root:
        put_local(root)("a.jsonl", b"x")
        (root / "closed").mkdir(mode=0)
        with without_root():
            assert names(root, "*.jsonl") == ["a.jsonl"]
        (root / "closed").chmod(0o755)


@pytest.mark.parametrize("pattern", ["", "/", "/**", "/**/*.jsonl", "/*/*.jsonl"])
def test_lost_and_found_of_a_volume_is_left_out(pattern: str) -> None:
    with open_folder() as root:
        put_local(root)("a.jsonl", b"x")
        put_local(root)("b/b.jsonl", b"x")
        (root / "lost+found").mkdir(mode=0)
        with without_root():
            found = [Path(file.uri).name for file in list_source((f"{root}{pattern}",))]
            assert closed_folders((f"{root}{pattern}",), "gs://b/out") == [str(root / "lost+found")]
        (root / "lost+found").chmod(0o755)
        assert closed_folders((f"{root}{pattern}",), "gs://b/out") == []
    assert found == ["b.jsonl"] if pattern == "/*/*.jsonl" else ["a.jsonl", "b.jsonl"]


def test_lost_and_found_that_can_be_listed_is_a_folder_like_others(tmp_path: Path) -> None:
    put_local(tmp_path)("lost+found/a.jsonl", b"x")
    assert names(tmp_path, "") == ["lost+found/a.jsonl"]


def test_a_plan_warns_of_lost_and_found(tmp_path: Path) -> None:
    with open_folder() as root:
        for name in ("src", "out"):
            (root / name / "lost+found").mkdir(parents=True)
            (root / name / "lost+found").chmod(0)
        (root / "src/a.jsonl").write_bytes(b'{"text":"a"}')
        job = make_job(root / "src/*.jsonl", root / "out", tokenizer={"name": "bytes"})
        prepare(job)  # imports what this user alone may read
        events: list[object] = []
        with without_root():
            prepare(make_job(root / "src", root / "out", tokenizer={"name": "bytes"}), events.append)
        for name in ("src", "out"):
            (root / name / "lost+found").chmod(0o755)
    warnings = [event.message for event in events if isinstance(event, Warned)]
    assert [message.partition(" is left out")[0] for message in warnings] == [
        f"{root}/src/lost+found",
        f"{root}/out/lost+found",
    ]


def test_a_closed_folder_of_that_name_below_another_one_is_named() -> None:
    with open_folder() as root:
        (root / "b" / "lost+found").mkdir(parents=True)
        (root / "b" / "lost+found").chmod(0)
        with without_root(), pytest.raises(SpecError, match="Permission denied"):
            list_source((str(root),))
        (root / "b" / "lost+found").chmod(0o755)


def test_a_name_that_is_not_utf8_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"bad-\xff.jsonl")).write_bytes(b"x")
    with pytest.raises(SpecError, match=r"bad-\\xff.jsonl.*not UTF-8") as raised:
        list_source((str(tmp_path),))
    assert raised.value.reason == "SourceInvalid"


def test_a_path_too_long_for_the_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as raised:
        list_source((str(tmp_path / ("x" * 300)),))
    assert raised.value.reason == "SourceNotReadable"
    assert "permission" not in raised.value.next_step
    assert "at most 255 bytes" in raised.value.next_step


@pytest.mark.parametrize("closed", ["folder", "folder/a"])
@pytest.mark.parametrize("pattern", ["folder", "folder/a", "folder/*", "**"])
def test_what_may_not_be_read_is_named(pattern: str, closed: str) -> None:
    with open_folder() as root:
        put_local(root)("folder/a", b"x")
        (root / closed).chmod(0)
        with without_root(), pytest.raises(SpecError, match="Permission denied") as raised:
            list_source((str(root / pattern),))
        (root / closed).chmod(0o755)
    assert raised.value.reason == "SourceNotReadable"
    assert str(root / "folder") in raised.value.message


def test_a_file_that_closes_after_the_plan_is_named() -> None:
    with open_folder() as root:
        put_local(root)("a", b"x")
        (root / "a").chmod(0)
        with without_root(), pytest.raises(SpecError, match="Permission denied") as raised:
            open_source(str(root / "a"))
    assert raised.value.reason == "SourceNotReadable"


# Buckets


@pytest.fixture
def source(fake: FakeGcs) -> GcsSource:
    return GcsSource(retry=RETRY.with_delay(initial=0.001, maximum=0.01).with_timeout(0.2))


def test_a_bucket_is_a_folder_and_folder_marks_are_no_files(fake: FakeGcs) -> None:
    for name in ("a", "sub/", "sub/b", "_SUCCESS"):
        fake.put(name, b"x")
    for pattern in ("gs://bucket", "gs://bucket/", "gs://bucket/**"):
        assert [file.uri for file in list_source((pattern,))] == ["gs://bucket/a", "gs://bucket/sub/b"]


def test_a_file_in_a_bucket_has_its_content_checksum_as_version(fake: FakeGcs, source: GcsSource) -> None:
    fake.put("a", b"abc")
    version = f"crc32c:{base64.b64encode(google_crc32c.value(b'abc').to_bytes(4, 'big')).decode()}"
    [file] = source.list(Pattern.parse("gs://bucket/*"))
    assert (file.size, file.version) == (3, version)
    fake.put("a", b"abc")  # another generation of the same content
    assert source.stat("gs://bucket/a") == file


def test_a_stream_is_a_file_to_the_standard_library(fake: FakeGcs, source: GcsSource) -> None:
    fake.put("a", b"one\ntwo\n")
    _, stream = source.open("gs://bucket/a")
    assert isinstance(stream, io.RawIOBase)
    assert list(io.BufferedReader(stream)) == [b"one\n", b"two\n"]


def test_a_file_replaced_while_it_is_read_stops_the_read(fake: FakeGcs, source: GcsSource) -> None:
    fake.put("a", b"x" * (FIRST_BYTES + 1))
    _, stream = source.open("gs://bucket/a")
    assert len(stream.read(1)) == 1
    fake.put("a", b"y" * (FIRST_BYTES + 1))
    assert stream.read(FIRST_BYTES) == b"x" * (FIRST_BYTES - 1)
    with pytest.raises(ChangedError, match="replaced or deleted while it was read") as raised:
        stream.read(1)
    assert raised.value.reason == "SourceChanged"


def test_a_read_that_comes_short_is_temporary(fake: FakeGcs, source: GcsSource) -> None:
    fake.put("a", b"0123456789")
    _, stream = source.open("gs://bucket/a")
    fake.objects["a"].data = b"01234"
    with pytest.raises(TemporaryError, match="got 5 bytes"):
        stream.read(10)


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        (403, "me@corp.com does not have storage.objects.get access", "--member=user:me@corp.com --role=roles/storage"),
        (401, "Invalid Credentials", "run gcloud auth application-default login"),
        (404, "The specified bucket does not exist.", "bucket 'bucket' does not exist"),
    ],
    ids=["403", "401", "404-bucket"],
)
@pytest.mark.parametrize("pattern", ["a", "*", "folder/"], ids=["file", "glob", "folder"])
def test_a_source_that_may_not_be_read_says_how_to_change_that(
    fake: FakeGcs, pattern: str, status: int, text: str, words: str
) -> None:
    fake.faults += [Fault("GET", "/b/bucket/o", status, text)]
    with pytest.raises(SpecError) as raised:
        list_source((f"gs://bucket/{pattern}",))
    assert raised.value.reason == "SourceNotReadable"
    assert words in str(raised.value)


def test_a_wildcard_in_the_bucket_is_refused() -> None:
    with pytest.raises(SpecError, match="not the name of a bucket"):
        list_source(("gs://corpus-*/a.jsonl",))
