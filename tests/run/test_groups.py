"""Groups of a source: every shard, count and share is what a loop over documents makes."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections.abc import Iterator, Sequence
from fractions import Fraction
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from support.engine.inline import inline
from support.runs import command, difference, make_job, read_index, run_command
from tokenization_worker import run_job
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.events import Warned

WORDS = ["alpha", "beta", "gamma", "ä", "日本", "0", "\n", " "]
FILES = {"web": [40, 0, 25], "code": [1, 60], "books": [9]}
SHARES = {"web": "30%", "code": "100%", "books": "62.5%"}
SPLITS: dict[str, list[dict[str, Any]]] = {
    "one": [{"name": "train"}],
    "leading": [{"name": "test", "shards": 2}, {"name": "train"}],
    "shares": [{"name": "test", "share": "25%"}, {"name": "train"}],
}


class Source(NamedTuple):
    """A corpus: its folder, and the texts of each file of each group in order; one line of each file is unusable."""

    folder: Path
    texts: dict[str, list[list[str]]]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("source")
    chance = random.Random(7)
    texts: dict[str, list[list[str]]] = {}
    for group, counts in FILES.items():
        (folder / group).mkdir()
        texts[group] = []
        for number, count in enumerate(counts):
            words = [0 if at % 9 == 4 else chance.randrange(60) for at in range(count)]
            texts[group].append([" ".join(chance.choice(WORDS) for _ in range(size)) for size in words])
            texts[group][-1] += ["the same text in each file"]
            lines = [json.dumps({"text": text}) for text in texts[group][-1]]
            lines.insert(len(lines) // 2, "no JSON")
            (folder / group / f"{number}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Source(folder, texts)


def job_of(source: Source, output: Path, /, *, shares: dict[str, Any] | None = None, **fields: Any) -> TokenizationJob:
    """`shares`: by group, as the manifest has them; a number asks for tokens."""
    groups = [
        {"name": name, "uris": [str(source.folder / name)]}
        | ({"tokens": share} if isinstance(share, int) else {"share": share})
        for name, share in (shares or SHARES).items()
    ]
    layout = {"shards": {"tokens": 700}, **fields.pop("output", {})}
    blocks = {"source": {"uris": None, "groups": groups}, "tokenizer": {"name": "bytes"}, "maxQuarantined": 10}
    return make_job(source.folder, output, blocks, output=layout, **fields)


def is_taken(text: str, share: Fraction) -> bool:
    digest = blake2b(text.encode(), digest_size=8, person=b"tokjob/group/1").digest()
    return int.from_bytes(digest, "big") < share * 2**64


def taken_of(source: Source, shares: dict[str, Fraction]) -> dict[str, list[str]]:
    """The texts of each group that are in its share, in order."""
    return {
        name: [text for file in source.texts[name] for text in file if is_taken(text, share)]
        for name, share in shares.items()
    }


def as_shares(shares: dict[str, str]) -> dict[str, Fraction]:
    return {name: Fraction(share.rstrip("%")) / 100 for name, share in shares.items()}


def shards_of(texts: Sequence[str], splits: str) -> Iterator[tuple[str, int, list[int]]]:
    """Split, number and tokens of each shard of one run of documents."""

    def cut(tokens: list[int]) -> list[list[int]]:
        return [tokens[at : at + 700] for at in range(0, len(tokens), 700)]

    def tokens_of(chosen: Sequence[str]) -> list[int]:
        return [token for text in chosen for token in (256, *text.encode())]

    if splits == "shares":
        hashes = [int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") for text in texts]
        is_test = [number < 2**62 for number in hashes]
        for split, wanted in (("test", True), ("train", False)):
            mine = [text for text, found in zip(texts, is_test, strict=True) if found is wanted]
            yield from ((split, number, shard) for number, shard in enumerate(cut(tokens_of(mine))))
        return
    leading = 2 if splits == "leading" else 0
    for number, shard in enumerate(cut(tokens_of(texts))):
        yield ("test", number, shard) if number < leading else ("train", number - leading, shard)


def require_shards(output: Path, expected: dict[str, list[int]]) -> None:
    """The shards at these paths below `output`, and no others."""
    found = {path.relative_to(output).as_posix(): path for path in output.rglob("*.npy")}
    assert found.keys() == expected.keys()
    for name, tokens in expected.items():
        assert np.load(found[name]).tolist() == tokens, name


@pytest.mark.parametrize("splits", SPLITS)
@pytest.mark.parametrize("shares", [SHARES, dict.fromkeys(SHARES, "100%")], ids=["shares", "whole"])
def test_shards_and_counts_are_those_of_a_loop_over_documents(
    source: Source, tmp_path: Path, splits: str, shares: dict[str, str]
) -> None:
    """However the source is cut into ranges."""
    taken = taken_of(source, as_shares(shares))
    expected = {
        f"{split}/{split}_{number:06d}.npy": tokens
        for split, number, tokens in shards_of([text for texts in taken.values() for text in texts], splits)
    }
    for cut in (300, 2000, 10**6):
        output = tmp_path / str(cut)
        run_job(
            job_of(source, output, shares=shares, output={"splits": SPLITS[splits]}, rangeBytes=cut),
            executor=inline(),
        )
        require_shards(output, expected)
        assert difference(output, tmp_path / "300") is None
    index = read_index(tmp_path / "300")
    assert index["formatVersion"] == 2
    sums = [sum(group[name] for group in index["groups"]) for name in ("documents", "quarantined", "leftOut")]
    conservation = index["conservation"]
    assert sums == [conservation["written"], conservation["quarantined"]["InvalidJson"], conservation["leftOut"]]
    assert conservation["read"] == sum(sums)
    for group in index["groups"]:
        texts = [text for file in source.texts[group["name"]] for text in file]
        files = list((source.folder / group["name"]).iterdir())
        assert group == {
            "name": group["name"],
            "files": len(files),
            "filesDropped": 0,
            "documents": len(taken[group["name"]]),
            "bytes": sum(path.stat().st_size for path in files),
            "tokens": sum(1 + len(text.encode()) for text in taken[group["name"]]),
            "quarantined": len(files),
            "leftOut": len(texts) - len(taken[group["name"]]),
        }


def test_a_larger_share_holds_a_smaller_one_and_equal_texts_share_a_fate(source: Source, tmp_path: Path) -> None:
    texts = {}
    for share in ("10%", "35%", "100%"):
        output = tmp_path / share
        run_job(job_of(source, output, shares=dict.fromkeys(FILES, share)), executor=inline())
        tokens = np.concatenate([np.load(path) for path in sorted(output.rglob("*.npy"))]).tolist()
        documents = [list(group) for is_text, group in itertools.groupby(tokens, lambda token: token != 256) if is_text]
        texts[share] = [bytes(document).decode() for document in documents]
        assert texts[share].count("the same text in each file") in (0, sum(map(len, FILES.values())))
    assert 0 < len(texts["10%"]) < len(texts["35%"]) < len(texts["100%"])
    assert set(texts["10%"]) < set(texts["35%"]) < set(texts["100%"])


def test_processes_and_kills_change_nothing(source: Source, tmp_path: Path) -> None:
    layout = {"splits": SPLITS["shares"]}
    whole = tmp_path / "whole"
    run_job(job_of(source, whole, output=layout, rangeBytes=500), executor=inline())
    job = job_of(source, tmp_path / "two", output=layout, rangeBytes=700)
    done = run_command(command(job, tmp_path / "2", "--processes", "2"))
    assert done.returncode == 0, done.stderr
    assert difference(tmp_path / "two", whole) is None
    stopped = tmp_path / "stopped"
    for tasks in itertools.count(1, 3):
        left = iter(range(tasks))

        def stop(task: object, left: Any = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt

        try:
            run_job(job_of(source, stopped, output=layout, rangeBytes=500), executor=inline(stop))
        except KeyboardInterrupt:
            continue
        break
    assert tasks > 4
    assert difference(stopped, whole) is None


def test_corrupt_files_are_no_part_of_their_groups_sums(source: Source, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    shutil.copytree(source.folder, folder)
    (folder / "code/1.jsonl").write_bytes(b"\x1f\x8b\x08\x00 no gzip")
    job = job_of(Source(folder, source.texts), tmp_path / "out", maxCorruptFiles=1)
    run_job(job, executor=inline())
    web, code, books = read_index(tmp_path / "out")["groups"]
    assert (code["files"], code["filesDropped"], code["documents"], code["quarantined"]) == (2, 1, 2, 1)
    assert (web["filesDropped"], books["filesDropped"]) == (0, 0)


BUDGET = {"web": 900, "code": 1300, "books": "100%"}


def test_a_share_that_follows_from_tokens_is_pinned(source: Source, tmp_path: Path) -> None:
    """Whatever the estimate says later, as long as fields and files are those of the plan or the index."""
    output = tmp_path / "out"
    run_job(job_of(source, output, shares=BUDGET), executor=inline())
    index = read_index(output)
    groups = {group["name"]: group for group in index["data"]["source"]["groups"]}
    for name, wanted in (("web", 900), ("code", 1300)):
        tokens = sum(1 + len(text.encode()) for file in source.texts[name] for text in file)
        share = Fraction(groups[name]["share"])
        assert groups[name]["tokens"] == wanted
        assert share <= Fraction(wanted, tokens) < share * Fraction(2**11 + 1, 2**11)  # the sample is the whole group
        assert share.numerator < 2**12
        assert share.denominator & (share.denominator - 1) == 0
    shares = {name: Fraction(group["share"]) for name, group in groups.items()}
    texts = [text for texts in taken_of(source, shares).values() for text in texts]
    expected = {f"{split}/{split}_{number:06d}.npy": shard for split, number, shard in shards_of(texts, "one")}
    require_shards(output, expected)


@pytest.mark.parametrize("is_complete", [True, False], ids=["index", "plan"])
def test_a_later_estimate_never_changes_a_pinned_share(
    source: Source, tmp_path: Path, is_complete: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, whole = tmp_path / "out", tmp_path / "whole"
    run_job(job_of(source, whole, shares=BUDGET, rangeBytes=500), executor=inline())
    if is_complete:
        run_job(job_of(source, output, shares=BUDGET, rangeBytes=500), executor=inline())
        next(output.rglob("*.npy")).unlink()
    else:
        left = iter(range(3))

        def stop(task: object) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_job(job_of(source, output, shares=BUDGET, rangeBytes=500), executor=inline(stop))
    monkeypatch.setattr("tokenization_worker.planning.estimate.Measured.tokens", lambda self, tokenizer: 10_000.0)
    run_job(job_of(source, output, shares=BUDGET, rangeBytes=500, rerunToken="again"), executor=inline())
    assert difference(output, whole) is None
    other = tmp_path / "other"
    run_job(job_of(source, other, shares=BUDGET), executor=inline())
    assert read_index(other)["data"]["source"]["groups"][0]["share"] == "2949/32768"


def test_a_group_with_fewer_tokens_than_asked_for_is_taken_whole(source: Source, tmp_path: Path) -> None:
    warnings: list[str] = []

    def watch(event: object) -> None:
        if isinstance(event, Warned):
            warnings.append(event.message)

    run_job(job_of(source, tmp_path / "out", shares={"books": 10**9}), executor=inline(), on_progress=watch)
    index = read_index(tmp_path / "out")
    assert index["data"]["source"]["groups"] == [{"name": "books", "share": "1", "tokens": 10**9}]
    assert index["conservation"]["leftOut"] == 0
    assert any("group books has about" in message and "1,000,000,000 are asked for" in message for message in warnings)


REFUSED: dict[str, tuple[list[dict[str, Any]], str]] = {
    "one file in two groups": (
        [{"name": "a", "uris": ["web"]}, {"name": "b", "uris": ["code", "web/2.jsonl"]}],
        "SourceInvalid: source.groups: the groups a and b both match {folder}/web/2.jsonl\n"
        "  next: narrow the uris of one of them: a file belongs to one group",
    ),
    "no file": (
        [{"name": "a", "uris": ["web"]}, {"name": "b", "uris": ["cod"]}],
        "SourceInvalid: source.groups, group b: '{folder}/cod' matches no file",
    ),
    "tokens of nothing": (
        [{"name": "a", "uris": ["web"]}, {"name": "b", "uris": ["broken"], "tokens": "10e3"}],
        "SpecInvalid: source.groups: tokjob cannot estimate the tokens of group b, because the sampled beginnings of "
        "its files hold no whole document\n  next: write a share of group b in place of tokens",
    ),
}


@pytest.mark.parametrize(("groups", "words"), REFUSED.values(), ids=REFUSED)
def test_groups_that_cannot_be_are_refused(
    source: Source, tmp_path: Path, groups: list[dict[str, Any]], words: str
) -> None:
    (source.folder / "broken").mkdir(exist_ok=True)
    (source.folder / "broken/0.jsonl").write_bytes(b'{"text": "' + b"x" * 8_000_000 + b'"}\n')
    given = [group | {"uris": [str(source.folder / uri) for uri in group["uris"]]} for group in groups]
    job = make_job(
        source.folder,
        tmp_path / "out",
        {"source": {"uris": None, "groups": given}},
        maxQuarantined=10,
        maxCorruptFiles=9,
    )
    done = run_command(command(job, tmp_path))
    assert (done.returncode, (tmp_path / "out").exists()) == (2, False)
    assert words.format(folder=source.folder) in done.stderr


def test_another_share_order_or_group_is_other_data(source: Source, tmp_path: Path) -> None:
    output = tmp_path / "out"
    run_job(job_of(source, output), executor=inline())
    for shares, words in (
        (SHARES | {"web": "31%"}, "source.groups: the job says [{name: web, share: 31%}"),
        (dict(reversed(SHARES.items())), "source.groups: the job says [{name: books, share: 62.5%}"),
    ):
        done = run_command(command(job_of(source, output, shares=shares), tmp_path))
        assert done.returncode == 3
        assert "OutputConflict" in done.stderr
        assert words in done.stderr
