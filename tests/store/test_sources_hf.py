"""Source files in datasets on the Hub: which commit is read, what is asked of whom, and what may go wrong."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import pytest

from support.patience import Clock, quick_retry
from support.stores.hub_fake import LARGE, TOKEN, FakeHub, Fault, hub
from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.storage.base import NotFound
from tokenization_worker.storage.hf.source import HfSource
from tokenization_worker.storage.patterns import Pattern
from tokenization_worker.storage.prefetch import BLOCK_BYTES, FIRST_BYTES, RangedReader
from tokenization_worker.storage.retry import MOST_ASKED_S, Retry
from tokenization_worker.storage.source_file import Changed
from tokenization_worker.storage.sources import list_source, open_file, open_source, open_unchanged, pins_of, read_uri

__all__ = ["hub"]

ROOT = "hf://datasets/org/name"
BIG = random.Random(5).randbytes(3 * LARGE)


def read(file: Any) -> bytes:
    with open_file(file) as stream:
        data: bytes = stream.read()
        return data


def listed(uri: str, **pins: str) -> list[tuple[str, str]]:
    return [(file.uri, file.pin) for file in list_source((uri,), pins)]


def test_files_have_their_checksum_as_version_and_the_commit_as_pin(hub: FakeHub) -> None:
    hub.put("org/name", "data/small", b"abc")
    commit = hub.put("org/name", "data/big", BIG)
    big, small = list_source((f"{ROOT}/data/*",))
    assert (small.size, small.version, small.pin) == (3, "git:f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f", commit)
    assert (big.size, big.version, big.pin) == (len(BIG), f"sha256:{hashlib.sha256(BIG).hexdigest()}", commit)
    assert list_source((big.uri, small.uri)) == [big, small]
    assert (read(big), read(small)) == (BIG, b"abc")


@pytest.mark.parametrize("data", [b"abc", BIG, b""], ids=["small", "large", "empty"])
def test_a_planned_file_is_read_at_its_commit_whatever_main_is_now(hub: FakeHub, data: bytes) -> None:
    hub.put("org/name", "a", data)
    [file] = list_source((f"{ROOT}/a",))
    hub.put("org/name", "a", b"other")
    with open_unchanged(file.uri, file.size, file.version, file.pin) as stream:
        assert stream.read() == data
    with pytest.raises(Changed):
        open_unchanged(file.uri, file.size, file.version)
    assert list_source((f"{ROOT}/*",), pins_of([file])) == [file]
    assert list_source((file.uri,), pins_of([file])) == [file]
    assert list_source((file.uri,)) != [file]


def test_an_open_stream_stays_at_its_commit(hub: FakeHub) -> None:
    data = BIG + bytes(2 * FIRST_BYTES)
    hub.put("org/name", "a", data)
    stream = open_source(f"{ROOT}/a")
    hub.put("org/name", "a", bytes(len(data)))
    assert stream.read(10) == data[:10]
    hub.put("org/name", "a", bytes(len(data)))
    hub.signed += 1
    assert b"".join(iter(lambda: stream.read(1 << 20), b"")) == data[10:]


def test_bytes_are_asked_for_as_they_are_stored(hub: FakeHub) -> None:
    hub.commit("org/name", {"small": b"abc", "large": BIG + bytes(FIRST_BYTES)})
    for name in ("small", "large"):
        read_uri(f"{ROOT}/{name}")
    asked = [headers["accept-encoding"] for _, path, headers in hub.requests if "/api/" not in path]
    assert set(asked) == {"identity"} and len(asked) > 5


def test_all_files_of_one_listing_are_of_one_commit(hub: FakeHub) -> None:
    for name in ("a/x", "b/x"):
        hub.put("org/name", name, b"abc")
    first = hub.refs["org/name", "main"]
    hub.faults.append(Fault("GET", "/tree/", meanwhile=lambda: hub.put("org/name", "b/y", b"new")))
    assert listed(f"{ROOT}/a/*") == [(f"{ROOT}/a/x", first)]
    hub.faults.append(Fault("GET", "/tree/", meanwhile=lambda: hub.put("org/name", "b/z", b"new")))
    both = list_source((f"{ROOT}/a/*", f"{ROOT}/b/*", f"{ROOT}/b/x"))
    assert [file.uri for file in both] == [f"{ROOT}/{name}" for name in ("a/x", "b/x", "b/y")]
    assert len({file.pin for file in both}) == 1


@pytest.mark.parametrize(
    ("written", "revision"),
    [("", "main"), ("@v1.0", "v1.0"), ("@feature%2Fone", "feature/one"), ("@refs/pr/1", "refs/pr/1")],
)
def test_a_revision_is_a_branch_a_tag_or_a_pull_request(hub: FakeHub, written: str, revision: str) -> None:
    hub.put("org/name", "a", b"main")
    commit = hub.commit("org/name", {"a": b"there", "sub/b": b"x"}, revision)
    root = ROOT + written
    assert listed(root) == [(f"{root}/a", commit), (f"{root}/sub/b", commit)]
    assert listed(f"{root}/a") == [(f"{root}/a", commit)]
    assert read_uri(f"{root}/a") == b"there"


def test_a_commit_needs_no_look_at_where_it_is(hub: FakeHub) -> None:
    commit = hub.put("org/name", "a", b"abc")
    hub.put("org/name", "a", b"new")
    root = f"{ROOT}@{commit}"
    assert listed(f"{root}/*") == [(f"{root}/a", commit)]
    assert read_uri(f"{root}/a") == b"abc"
    assert hub.paths("GET", "/revision/") == []


def test_more_files_than_a_page_holds_are_all_listed(hub: FakeHub) -> None:
    names = [f"many/{number:05d}" for number in range(2_100)]
    hub.commit("org/name", dict.fromkeys(names, b"x"))
    assert [file.uri for file in list_source((f"{ROOT}/many",))] == [f"{ROOT}/{name}" for name in names]
    assert len(hub.paths("GET", "/tree/")) == 4  # three pages, and the look whether it is a folder


def test_folders_that_no_match_can_lie_in_are_not_listed(hub: FakeHub) -> None:
    hub.commit("org/name", {"a.jsonl": b"x"} | {f"below/{number}.jsonl": b"x" for number in range(2_100)})
    assert [file.uri for file in HfSource().list(Pattern.parse(f"{ROOT}/*.jsonl"))] == [f"{ROOT}/a.jsonl"]
    assert len(hub.paths("GET", "/tree/")) == 1


def test_names_of_any_characters_are_listed_and_read(hub: FakeHub) -> None:
    names = ["a b", "a%20b", "a+b", "a&b=c", "a#b?c", "ä/ö", "日本/x.jsonl", "'\"<>", "a:b@c"]
    hub.commit("org/name", {f"corpus/{name}": name.encode() * LARGE for name in names})
    files = list_source((f"{ROOT}/corpus",))
    assert [file.uri for file in files] == [f"{ROOT}/corpus/{name}" for name in sorted(names, key=str.encode)]
    assert [read(file) for file in files] == [name.encode() * LARGE for name in sorted(names, key=str.encode)]
    assert [list_source((file.uri,)) for file in files] == [[file] for file in files]


def test_the_hub_is_asked_once_for_a_file_and_its_store_for_the_ranges(hub: FakeHub) -> None:
    data = random.Random(3).randbytes(FIRST_BYTES + 4 * BLOCK_BYTES)
    hub.put("org/name", "a", data)
    stream = open_source(f"{ROOT}/a")
    assert b"".join(iter(lambda: stream.read(100_000), b"")) == data
    assert (len(hub.paths("HEAD", "/resolve/")), len(hub.paths("GET", "/resolve/"))) == (1, 1)
    assert len(hub.paths("GET", "/store/")) == 5
    read(list_source((f"{ROOT}/a",))[0])  # as for its next slice
    assert len(hub.paths("GET", "/resolve/")) == 1


def test_an_address_that_expired_is_asked_for_again(hub: FakeHub) -> None:
    data = random.Random(3).randbytes(4 * FIRST_BYTES)
    hub.put("org/name", "a", data)
    stream = open_source(f"{ROOT}/a")
    assert stream.read(10) == data[:10]
    hub.signed += 1
    stream.seek(2 * FIRST_BYTES)
    assert stream.read(10) == data[2 * FIRST_BYTES :][:10]
    assert len(hub.paths("GET", "/resolve/")) == 2


def test_only_the_hub_sees_the_token(hub: FakeHub) -> None:
    hub.put("org/name", "a", BIG * FIRST_BYTES.bit_length())
    [file] = list_source((f"{ROOT}/a",))
    read(file)
    list_source((f"{ROOT}/*",))
    hub.put("org/name", "a", BIG)
    seen = {("/store/" in path, headers.get("authorization")) for _, path, headers in hub.requests}
    assert seen == {(True, None), (False, f"Bearer {TOKEN}")}


def test_a_public_dataset_needs_no_token(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    hub.put("org/name", "a", b"abc")
    assert read_uri(f"{ROOT}/a") == b"abc"
    assert all("authorization" not in headers for _, _, headers in hub.requests)


# What may not be read


@pytest.mark.parametrize("token", [None, TOKEN], ids=["no-token", "token"])
def test_a_gated_dataset_says_where_to_ask(hub: FakeHub, monkeypatch: pytest.MonkeyPatch, token: str | None) -> None:
    hub.put("org/name", "a", b"abc")
    hub.gated.add("org/name")
    if token is None:
        monkeypatch.delenv("HF_TOKEN")
    [file] = list_source((f"{ROOT}/*",))
    with pytest.raises(SpecError, match="dataset org/name is gated") as raised:
        open_file(file)
    assert raised.value.reason == "SourceNotReadable"
    assert ("the token in HF_TOKEN has no access" if token else "no token was found") in raised.value.message
    assert f"ask for access at {hub.url}/datasets/org/name" in raised.value.next_step
    assert "HF_TOKEN" in raised.value.next_step
    assert TOKEN not in str(raised.value)
    hub.has_access = True
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert read(file) == b"abc"


@pytest.mark.parametrize("pattern", ["a", "*", "folder/"], ids=["file", "glob", "folder"])
@pytest.mark.parametrize("token", [None, TOKEN, "hf_expired"], ids=["no-token", "token", "expired"])
def test_a_dataset_that_is_missing_or_private_is_named(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, token: str | None, pattern: str
) -> None:
    hub.put("org/private", "a", b"abc")
    hub.private.add("org/private")
    if token is None:
        monkeypatch.delenv("HF_TOKEN")
    else:
        monkeypatch.setenv("HF_TOKEN", token)
    name = "org/private" if token is None else "org/missing"
    with pytest.raises(SpecError) as raised:
        list_source((f"hf://datasets/{name}/{pattern}",))
    assert raised.value.reason == "SourceNotReadable"
    assert "HF_TOKEN" in raised.value.next_step
    words = "the Hub refuses the token in HF_TOKEN" if token == "hf_expired" else f"there is no dataset {name}"
    assert words in raised.value.message
    assert (token or TOKEN) not in str(raised.value)


@pytest.mark.parametrize("pattern", ["a", "*", "folder/"], ids=["file", "glob", "folder"])
def test_a_revision_that_is_missing_is_named(hub: FakeHub, pattern: str) -> None:
    hub.put("org/name", "a", b"abc")
    with pytest.raises(SpecError, match="dataset org/name has no revision 'v9'") as raised:
        list_source((f"{ROOT}@v9/{pattern}",))
    assert raised.value.reason == "SourceInvalid"


@pytest.mark.parametrize(
    "uri",
    [
        "hf://org/model/a",
        "hf://models/org/name/a",
        "hf://spaces/org/name/a",
        "hf://datasets/name",
        "hf://datasets/org/*/a",
        "hf://datasets/org/name@ma*/a",
        "hf://datasets/org/na me/a",
    ],
)
def test_what_is_no_place_in_a_dataset_is_refused(uri: str) -> None:
    with pytest.raises(SpecError, match="tokjob does not read models and spaces") as raised:
        list_source((uri,))
    assert "hf://datasets/org/name/path" in raised.value.next_step


def test_a_name_that_the_hub_would_never_give_is_refused(hub: FakeHub) -> None:
    with pytest.raises(SpecError, match=r"a\.\.b"):
        list_source(("hf://datasets/org/a..b/*",))


def test_a_missing_file_is_not_found(hub: FakeHub) -> None:
    hub.put("org/name", "a", b"abc")
    for name in ("b", "a/b", "", "a/"):
        with pytest.raises(NotFound):
            read_uri(f"{ROOT}/{name}")


# Commits that go away


def test_a_commit_that_a_rewritten_history_lost_is_no_change_where_the_files_are_the_same(hub: FakeHub) -> None:
    hub.put("org/name", "a", BIG)
    [file] = list_source((f"{ROOT}/a",))
    hub.forget("org/name", file.pin)
    hub.commit("org/name", {"a": BIG})
    for pattern in ("*", "a", ""):
        assert list_source((f"{ROOT}/{pattern}",), pins_of([file])) == [file]
    with open_unchanged(file.uri, file.size, file.version, file.pin) as stream:
        assert stream.read() == BIG
    hub.commit("org/name", {"a": b"other"})
    with pytest.raises(Changed):
        open_unchanged(file.uri, file.size, file.version, file.pin)


def test_a_commit_that_the_user_named_and_that_is_gone_is_missing(hub: FakeHub) -> None:
    commit = hub.put("org/name", "a", BIG)
    [file] = list_source((f"{ROOT}@{commit}/a",))
    hub.forget("org/name", commit)
    for again in (lambda: open_file(file), lambda: list_source((f"{ROOT}@{commit}/*",), pins_of([file]))):
        with pytest.raises(SpecError, match="has no revision"):
            again()


# Bad networks


@pytest.mark.parametrize("endpoint", ["127.0.0.1:9", "hub.example", "https:/hub.example"])
def test_an_endpoint_that_is_no_address_is_named_at_once(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    for ask in requests_of(HfSource()).values():
        with pytest.raises(SpecError, match=r"HF_ENDPOINT is .*: expected http://host:port"):
            ask()


def requests_of(source: HfSource) -> dict[str, Any]:
    return {
        "list": lambda: list(source.list(Pattern.parse(f"{ROOT}/*"))),
        "stat": lambda: source.stat(f"{ROOT}/a"),
        "is_folder": lambda: source.is_folder(ROOT),
        "read": lambda: source.open(f"{ROOT}/a")[1].read(10),
    }


FAULTS = {
    "503": Fault("GET", "/", 503, {"retry-after": "0"}),
    "429": Fault("GET", "/", 429, {"ratelimit": '"resolvers";r=0;t=0'}),
    "500": Fault("GET", "/", 500),
    "broken": Fault("GET", "/"),
    "broken-in-the-body": Fault("GET", "/", after=1),
    "not-the-hub": Fault("GET", "/", 200, {"content-type": "text/html"}, b"<html>Log in to this network</html>"),
}


@pytest.mark.parametrize("what", ["list", "is_folder", "read"])
@pytest.mark.parametrize("name", FAULTS)
def test_what_passes_is_tried_again(hub: FakeHub, name: str, what: str) -> None:
    hub.put("org/name", "a", BIG)
    expected = requests_of(HfSource())[what]()
    hub.faults += [FAULTS[name]] * 2
    assert requests_of(HfSource(retry=quick_retry()))[what]() == expected
    assert not hub.faults


@pytest.mark.parametrize(
    "headers", [{"retry-after": "150"}, {"ratelimit": '"resolvers";r=0;t=150'}], ids=["retry-after", "ratelimit"]
)
def test_a_rate_limit_is_waited_for_as_long_as_it_says(hub: FakeHub, headers: dict[str, str]) -> None:
    hub.put("org/name", "a", BIG)
    clock = Clock()
    source = HfSource(retry=Retry(clock=lambda: clock.now, sleep=clock.sleep))
    _, stream = source.open(f"{ROOT}/a")
    hub.faults += [Fault("GET", "/", 429, headers)] * 2
    begin = clock.now
    assert stream.read(10) == BIG[:10]
    assert 300 <= clock.now - begin < 310


def test_a_read_is_given_up_no_sooner_than_its_tries_may_end(hub: FakeHub) -> None:
    hub.put("org/name", "a", BIG)
    _, stream = HfSource().open(f"{ROOT}/a")
    assert isinstance(stream, RangedReader)
    assert stream.patience_s > Retry().limit_s + MOST_ASKED_S


@pytest.mark.parametrize("status", [0, 503])
def test_a_look_at_a_file_that_fails_is_made_again(hub: FakeHub, status: int) -> None:
    hub.put("org/name", "a", BIG)
    hub.faults += [Fault("HEAD", "/", status)] * 2
    file = HfSource(retry=quick_retry()).stat(f"{ROOT}/a")
    assert file is not None and file.size == len(BIG)


@pytest.mark.parametrize("what", ["list", "stat", "is_folder", "read"])
def test_what_does_not_pass_is_temporary(hub: FakeHub, what: str) -> None:
    hub.put("org/name", "a", BIG)
    hub.faults += [Fault(method, "/", 503) for method in ("GET", "HEAD") for _ in range(50)]
    with pytest.raises(TemporaryError, match="503") as raised:
        requests_of(HfSource(retry=quick_retry()))[what]()
    assert raised.value.reason == "StorageFailed"
    assert len(hub.faults) < 95


def test_the_address_of_a_store_is_a_secret_and_in_no_message(hub: FakeHub) -> None:
    hub.put("org/name", "a", BIG)
    hub.faults += [Fault("GET", "/store/", 500)] * 50
    with pytest.raises(TemporaryError) as raised:
        requests_of(HfSource(retry=quick_retry()))["read"]()
    assert "signed" not in str(raised.value)


@pytest.mark.parametrize("before", [0, FIRST_BYTES], ids=["first-read", "later-read"])
def test_a_body_that_stalls_is_given_up_and_read_again(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    data = BIG + bytes(2 * FIRST_BYTES)
    hub.put("org/name", "a", data)
    _, stream = HfSource(retry=quick_retry()).open(f"{ROOT}/a")
    assert len(stream.read(before)) == before
    monkeypatch.setattr("tokenization_worker.storage.hf.client.TIMEOUT_S", 0.3)
    hub.faults += [Fault("GET", "/store/", after=3, stalls=True)]
    assert stream.read(10) == data[before:][:10]
    assert not hub.faults


def test_a_listing_that_stalls_is_given_up_and_made_again(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.put("org/name", "a", b"abc")
    monkeypatch.setattr("tokenization_worker.storage.hf.client.TIMEOUT_S", 0.3)
    hub.faults += [Fault("GET", verb, after=3, stalls=True) for verb in ("/revision/", "/tree/")]
    source = HfSource(retry=quick_retry())
    assert len(list(source.list(Pattern.parse(f"{ROOT}/*")))) == 1
    assert not hub.faults


@pytest.mark.parametrize("start", [0, FIRST_BYTES])
def test_a_range_that_is_ignored_is_not_taken_for_it(hub: FakeHub, start: int) -> None:
    data = bytes(3 * FIRST_BYTES)
    hub.put("org/name", "a", data)
    _, stream = HfSource(retry=quick_retry()).open(f"{ROOT}/a")
    stream.seek(start)
    hub.faults += [Fault("GET", "/store/", 200, {}, data)] * 50
    with pytest.raises(TemporaryError, match="asked for bytes"):
        stream.read(1)


def test_offline_mode_is_obeyed_and_named(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SpecError, match="HF_HUB_OFFLINE is set"):
        list_source((f"{ROOT}/*",))
    assert hub.requests == []


def test_a_token_that_no_request_can_hold_is_refused_before_one(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.put("org/name", "a", b"abc")
    monkeypatch.setenv("HF_TOKEN", "hf_ü")
    with pytest.raises(SpecError, match="SourceNotReadable: HF_TOKEN holds a character that no token has") as raised:
        list_source((f"{ROOT}/a",))
    assert "hf_ü" not in str(raised.value)
    assert not hub.requests
