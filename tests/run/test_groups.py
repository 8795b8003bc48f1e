"""Groups of a source: every shard, count and share is what a loop over documents makes."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pickle
import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from support.corpus import json_lines
from support.engine.inline import inline, run_with_stops
from support.faults.plant import Document, Planter
from support.forked_commands import TOKJOB
from support.runs import command, difference, make_job, read_index, run_command
from tokenization_worker import open_dataset, run_job, verify
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.cli.progress import describe_end
from tokenization_worker.dataset import GroupUnknown
from tokenization_worker.errors import DataError, SpecError
from tokenization_worker.events import Event, Warned
from tokenization_worker.inspect.clean import clean_output
from tokenization_worker.inspect.preview import preview_run
from tokenization_worker.inspect.show import show_documents
from tokenization_worker.planning.measured import Measured
from tokenization_worker.planning.splits import stream_of

WORDS = ["alpha", "beta", "gamma", "ä", "日本", "0", "\n", " "]
FILES = {"web": [40, 0, 25], "code": [1, 60], "books": [30]}
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


PATHS = {
    "joined": "{split}/{split}_{index:06d}",
    "apart": "{group}/{split}_{index:05d}",
    "counted": "{split}_{group}_{shard:04d}",
}
WAYS = [
    (path, splits, shares)
    for path in PATHS
    for splits in SPLITS
    for shares in (SHARES, dict.fromkeys(SHARES, "100%"))
    if (path, splits) != ("counted", "shares")
]


def expected_shards(taken: dict[str, list[str]], path: str, splits: str) -> dict[str, list[int]]:
    """Tokens by path."""
    runs = {"": [text for texts in taken.values() for text in texts]} if path == "joined" else taken
    shards: dict[str, list[int]] = {}
    for group, texts in runs.items():
        for split, number, tokens in shards_of(texts, splits):
            name = PATHS[path].format(split=split, index=number, group=group, shard=len(shards))
            shards[f"{name}.npy"] = tokens
    return shards


def test_the_plan_counts_the_shards_of_each_group_and_split(source: Source, tmp_path: Path) -> None:
    output = {"splits": SPLITS["shares"], "path": PATHS["apart"], "shards": {"tokens": 1 << 20}}
    job = job_of(source, tmp_path / "out", output=output)
    planned = preview_run(job).shards
    run_job(job, executor=inline())
    found = sum(split["shards"] for split in read_index(tmp_path / "out")["splits"])
    assert planned == found == len(FILES) * 2


@pytest.mark.sampled(7)  # test_every_layout has each pair of values
@pytest.mark.parametrize(("path", "splits", "shares"), WAYS)
def test_shards_and_counts_are_those_of_a_loop_over_documents(
    source: Source, tmp_path: Path, path: str, splits: str, shares: dict[str, str]
) -> None:
    """However the source is cut into ranges."""
    taken = taken_of(source, as_shares(shares))
    expected = expected_shards(taken, path, splits)
    output_of = {"splits": SPLITS[splits], "path": PATHS[path]}
    for cut in (300, 2000, 10**6):
        output = tmp_path / str(cut)
        run_job(job_of(source, output, shares=shares, output=output_of, rangeBytes=cut), executor=inline())
        require_shards(output, expected)
        assert difference(output, tmp_path / "300") is None
    index = read_index(tmp_path / "300")
    assert index["formatVersion"] == 2
    sums = [sum(group[name] for group in index["groups"]) for name in ("documents", "quarantined", "leftOut")]
    conservation = index["conservation"]
    assert sums == [conservation["written"], conservation["quarantined"]["InvalidJson"], conservation["leftOut"]]
    assert conservation["read"] == sum(sums)
    for group in index["groups"]:
        in_splits = group.pop("splits", None)
        assert (in_splits is None) == (path == "joined")
        assert sum(each["tokens"] for each in in_splits or [group]) == group["tokens"]
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


@pytest.mark.parametrize("path", ["joined", "apart"])
def test_processes_and_kills_change_nothing(source: Source, tmp_path: Path, path: str) -> None:
    layout = {"splits": SPLITS["shares"], "path": PATHS[path]}
    whole = tmp_path / "whole"
    run_job(job_of(source, whole, output=layout, rangeBytes=500), executor=inline())
    job = job_of(source, tmp_path / "two", output=layout, rangeBytes=700)
    done = run_command(command(job, tmp_path / "2", "--processes", "2"))
    assert done.returncode == 0, done.stderr
    assert difference(tmp_path / "two", whole) is None
    stopped = tmp_path / "stopped"
    tasks = run_with_stops(job_of(source, stopped, output=layout, rangeBytes=500), step=3)
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
    monkeypatch.setattr("tokenization_worker.planning.measured.Measured.tokens", lambda self, tokenizer: 10_000.0)
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


def test_a_group_far_from_the_tokens_that_it_asked_for_is_told_of(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimate sees twice the tokens that there are, so about half of those that are asked for come out."""
    tokens = {
        name: sum(1 + len(text.encode()) for texts in files for text in texts) for name, files in source.texts.items()
    }
    asked = {name: each // 2 for name, each in tokens.items()}
    measured = Measured.tokens
    monkeypatch.setattr(Measured, "tokens", lambda self, tokenizer: 2 * measured(self, tokenizer))
    seen: list[Event] = []
    finished = run_job(job_of(source, tmp_path / "out", shares=asked), executor=inline(), on_progress=seen.append)
    warnings = [event.message for event in seen if isinstance(event, Warned)]
    assert len(finished.groups) == len(asked)
    for group in finished.groups:
        assert group.asked == asked[group.name]
        off = abs(group.tokens / group.asked - 1)
        assert off > 0.1
        told = f"group {group.name} has {group.tokens:,} tokens, and {group.asked:,} are asked for ({off:.0%} fewer)"
        assert [each for each in warnings if each.startswith(told)]
        assert f"{group.tokens:,} tokens of {group.asked:,} asked for" in describe_end(finished, 1.0)
    better = re.findall(r"group web .* share: ([\d.]+)% gives", "\n".join(warnings))
    again = run_job(job_of(source, tmp_path / "again", shares={"web": f"{better[0]}%"}), executor=inline())
    assert finished.groups[0].tokens < again.groups[0].tokens <= tokens["web"]
    assert again.groups[0].asked is None


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


@pytest.fixture(scope="module")
def planted(source: Source, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Finished datasets with groups in one run and in runs of their own, not to be written to."""
    folder = tmp_path_factory.mktemp("planted")
    for path in ("joined", "apart"):
        layout = {"path": PATHS[path], "splits": SPLITS["shares"]}
        run_job(job_of(source, folder / path, output=layout, rangeBytes=2000), executor=inline())
    return {path: folder / path for path in ("joined", "apart")}


def leave_out_one(planter: Planter) -> Document:
    """A document that its group's share takes is not written, and counts as left out."""
    document = next(each for each in planter.documents if len(each.tokens) > 3)
    planter.documents.remove(document)
    planter.left_out.append(document)
    return document


def take_one_more(planter: Planter) -> Document:
    """A document that its group's share leaves out is written."""
    document = next(each for each in planter.left_out if len(each.tokens) > 3)
    planter.left_out.remove(document)
    planter.documents.append(document)
    planter.documents.sort(key=lambda each: (each.file, each.position))
    return document


def take_one_for_another(planter: Planter) -> Document:
    """One is left out for another of the same file that should have been."""
    document = leave_out_one(planter)
    other = next(each for each in planter.left_out if each.file == document.file and each is not document)
    planter.left_out.remove(other)
    planter.documents.append(other)
    planter.documents.sort(key=lambda each: (each.file, each.position))
    return other


def move_to_another_group(planter: Planter) -> Document:
    """A document stands among those of a file of the next group."""
    document = next(each for each in planter.documents if len(each.tokens) > 3)
    group = planter.files[document.file]["group"]
    number = next(number for number, row in enumerate(planter.files) if row["group"] != group)
    step = len(planter.facts.splits) if planter.facts.path_groups else 0
    moved = dataclasses.replace(document, file=number, position=0, stream=document.stream + step)
    at = next(at for at, each in enumerate(planter.documents) if each.file == number)
    planter.documents.insert(at, moved)
    planter.documents.remove(document)
    return document


@pytest.mark.parametrize("path", ["joined", "apart"])
@pytest.mark.parametrize("plant", [leave_out_one, take_one_more, take_one_for_another, move_to_another_group])
def test_verify_names_what_was_planted_with_all_checksums_recomputed(
    planted: dict[str, Path], tmp_path: Path, path: str, plant: Callable[[Planter], Document]
) -> None:
    output = tmp_path / "out"
    shutil.copytree(planted[path], output)
    planter = Planter(output)
    planter.write()
    assert difference(output, planted[path]) is None
    assert verify(str(output), mode="full", processes=1).is_clean
    document = plant(planter)
    planter.write()
    assert verify(str(output), mode="checksums", processes=1).is_clean
    for mode in ("sample", "full"):
        report = verify(str(output), mode=mode, processes=1, sample_one_in=1)
        assert {finding.uri for finding in report.findings} >= {document.uri}
        faults = {str(finding.fault) for finding in report.findings}
        assert faults & {"FileCounts", "TokensAdded", "DocumentLost", "TokensDiffer", "DocumentDoubled"}, faults


def test_a_group_that_ends_before_its_last_split_is_named(source: Source, tmp_path: Path) -> None:
    layout = {"path": PATHS["apart"], "splits": [{"name": "test", "shards": 6}, {"name": "train"}]}
    done = run_command(command(job_of(source, tmp_path / "out", output=layout), tmp_path))
    assert done.returncode == 2
    words = "split 'train' of group web would hold no tokens: group web fills 3 shards and the leading splits take 6"
    assert f"SplitEmpty: output.splits: {words}" in done.stderr


def warnings_of(job: TokenizationJob) -> tuple[list[str], list[str]]:
    """Those of the plan and of the run."""
    planned, told = list[Event](), list[Event]()
    preview_run(job, watch=planned.append)
    run_job(job, executor=inline(), on_progress=told.append)
    kept = [[event.message for event in events if isinstance(event, Warned)] for events in (planned, told)]
    return kept[0], kept[1]


def test_a_split_may_be_empty_in_a_group_and_plan_and_run_say_so(source: Source, tmp_path: Path) -> None:
    splits = [{"name": "test", "share": "5%"}, {"name": "train"}]
    job = job_of(source, tmp_path / "out", output={"path": PATHS["apart"], "splits": splits})
    taken = taken_of(source, as_shares(SHARES))
    in_test = {name: sum(stream_of(text.encode(), [2**64 // 20]) == 0 for text in taken[name]) for name in taken}
    assert in_test["books"] == 0 < in_test["web"]
    planned, told = warnings_of(job)
    count = len(taken["books"])
    assert (
        f"output.splits: split 'test' of group books has no shards: none of its group's {count} documents falls into it"
        in planned
    )
    assert "split 'test' of group books has no shards: no document falls into its share" in told
    assert verify(str(tmp_path / "out"), mode="full", processes=1).is_clean
    dataset = open_dataset(tmp_path / "out")
    assert len(dataset["test"].groups["books"]) == 0
    assert len(dataset["test"]) == len(dataset["test"].groups["web"]) + len(dataset["test"].groups["code"])


@pytest.mark.parametrize("splits", ["one", "shares"])
def test_a_group_without_tokens_has_no_shards(source: Source, tmp_path: Path, splits: str) -> None:
    layout = {"path": PATHS["apart"], "splits": SPLITS[splits]}
    job = job_of(source, tmp_path / "out", shares=SHARES | {"books": "0.0001%"}, output=layout)
    _, told = warnings_of(job)
    assert "group books has no tokens, and so no shards" in told
    assert verify(str(tmp_path / "out"), mode="full", processes=1).is_clean
    assert len(open_dataset(tmp_path / "out")["train"].groups["books"]) == 0


def test_a_split_that_is_empty_in_all_groups_is_refused_by_the_plan(source: Source, tmp_path: Path) -> None:
    splits = [{"name": "test", "share": "0.0001%"}, {"name": "train"}]
    job = job_of(source, tmp_path / "out", output={"path": PATHS["apart"], "splits": splits})
    for refuse in (preview_run, lambda job: run_job(job, executor=inline())):
        with pytest.raises(SpecError) as caught:
            refuse(job)
        assert caught.value.reason == "SplitEmpty"
        assert "split 'test' would hold no tokens" in caught.value.message


def test_a_plan_warns_of_splits_that_may_be_empty_where_it_has_not_seen_all(tmp_path: Path) -> None:
    for group in ("large", "small"):
        (tmp_path / "source" / group).mkdir(parents=True)
    texts = ["some words of a document " * 40] * 3000
    (tmp_path / "source/large/a.jsonl").write_bytes(json_lines([f"{n} {text}" for n, text in enumerate(texts)]))
    (tmp_path / "source/small/a.jsonl").write_bytes(json_lines(["few"] * 20))
    groups = [{"name": name, "uris": [str(tmp_path / "source" / name)]} for name in ("large", "small")]
    layout = {"path": PATHS["apart"], "splits": [{"name": "test", "share": "0.05%"}, {"name": "train"}]}
    job = make_job(tmp_path, tmp_path / "out", source={"uris": None, "groups": groups}, output=layout)
    planned = list[Event]()
    preview_run(job, watch=planned.append)
    told = [event.message for event in planned if isinstance(event, Warned)]
    assert len(told) == 3
    assert re.fullmatch(
        r"output.splits: split 'test' of group large may get no document, as it takes 0.05 % of about \d,\d{3} "
        "documents: it then has no shards",
        told[0],
    )
    assert (
        told[1]
        == "output.splits: split 'test' of group small has no shards: none of its group's 20 documents falls into it"
    )
    assert told[2].startswith("output.splits: split 'test' may get no document, as it takes 0.05 % of about ")
    assert told[2].endswith(": the run then ends with SplitEmpty")


def test_the_last_split_may_be_empty_too(source: Source, tmp_path: Path) -> None:
    splits = [{"name": "test", "share": "99.99%"}, {"name": "train"}]
    job = job_of(source, tmp_path / "out", output={"path": PATHS["joined"], "splits": splits})
    with pytest.raises(SpecError, match=r"SplitEmpty: output\.splits: split 'train' would hold no tokens"):
        preview_run(job)
    (tmp_path / "large.jsonl").write_bytes(json_lines([f"{n} " + "a document " * 300 for n in range(500)]))
    job = make_job(tmp_path / "large.jsonl", tmp_path / "large", output={"splits": splits})
    planned = list[Event]()
    preview_run(job, watch=planned.append)
    (told,) = [event.message for event in planned if isinstance(event, Warned)]
    assert "split 'train' may get no document, as it takes 0.01 % of about" in told


def test_a_dataset_gives_the_part_of_each_group(source: Source, planted: dict[str, Path]) -> None:
    dataset = open_dataset(planted["apart"])
    assert dataset.groups == ("web", "code", "books")
    taken = taken_of(source, as_shares(SHARES))
    for split in ("test", "train"):
        whole, at = dataset[split], 0
        assert list(whole.groups) == ["web", "code", "books"]
        for name, part in whole.groups.items():
            tokens = [token for each, _, shard in shards_of(taken[name], "shares") if each == split for token in shard]
            assert part[:].tolist() == tokens
            assert whole[at : at + len(part)].tolist() == tokens
            texts = [bytes(document.tolist()).decode() for document in part.read_documents()]
            assert [token for text in texts for token in (256, *text.encode())] == tokens
            assert pickle.loads(pickle.dumps(part))[:].tolist() == tokens
            for token in range(0, len(part), 97):
                place = dataset.locate(split, at + token)
                assert (place.group, place.split) == (name, split)
                assert place.start <= token < place.start + place.tokens
                assert Path(place.uri).parent.name == name
                document = part[place.start : place.start + place.tokens].tolist()
                assert bytes(document[1:]).decode() in taken[name]
            at += len(part)
        assert len(whole) == at
        assert (
            sum(1 for _ in whole.read_documents())
            == whole.documents
            == sum(part.documents for part in whole.groups.values())
        )
    assert open_dataset(planted["joined"])["train"].groups == {}


def test_a_group_that_a_split_does_not_have_is_answered_with_those_that_it_has(planted: dict[str, Path]) -> None:
    groups = open_dataset(planted["apart"])["train"].groups
    with pytest.raises(
        GroupUnknown, match="split 'train' has no group 'cod'\n  next: one of: web, code, books"
    ) as caught:
        groups["cod"]
    assert isinstance(caught.value, KeyError)
    assert groups.get("cod") is None
    assert "cod" not in groups
    with pytest.raises(GroupUnknown, match=r"has no group 'web'\n  next: read the split itself; .*{group}"):
        open_dataset(planted["joined"])["train"].groups["web"]


def test_shown_documents_are_those_of_the_source(source: Source, planted: dict[str, Path]) -> None:
    """Positions are counted over what the shares leave out."""
    for path, group in (("apart", "code"), ("apart", ""), ("joined", "")):
        shown = show_documents(str(planted[path]), "train", 0, count=8, group=group)
        assert len(shown) == 8
        for document in shown:
            line = Path(document.place.uri).read_bytes()[document.position :].split(b"\n")[0]
            assert json.loads(line)["text"] == document.text
            assert document.place.group == Path(document.place.uri).parent.name
    for group, words in (("cod", "one of: web, code, books"), ("code", "")):
        done = run_command([str(TOKJOB), "show", "--group", group, str(planted["apart"])])
        assert done.returncode == (2 if words else 0)
        assert words in done.stderr
        assert (f"GroupUnknown: split 'train' of {planted['apart']} has no group 'cod'" in done.stderr) == bool(words)
    done = run_command([str(TOKJOB), "show", "--group", "code", str(planted["joined"])])
    assert "next: leave --group out: its shards hold all groups" in done.stderr


def test_rows_of_groups_begin_with_their_group(source: Source, tmp_path: Path) -> None:
    layout = {"path": PATHS["apart"], "sequence": {"length": 50}, "shards": {"sequences": 7}}
    run_job(job_of(source, tmp_path / "out", output=layout, rangeBytes=700), executor=inline())
    taken = taken_of(source, as_shares(SHARES))
    train = open_dataset(tmp_path / "out")["train"]
    at = 0
    for name, part in train.groups.items():
        tokens = [token for text in taken[name] for token in (256, *text.encode())]
        tokens += [256] * (-len(tokens) % 50)
        assert part.rows[:].reshape(-1).tolist() == tokens
        assert train.rows[at : at + len(part.rows)].tolist() == part.rows[:].tolist()
        assert [document.tolist() for document in part.read_documents()] == [
            list(text.encode()) for text in taken[name]
        ]
        at += len(part.rows)
    assert len(train.rows) == at
    assert verify(str(tmp_path / "out"), mode="full", processes=1).is_clean


def test_clean_removes_the_shards_of_all_groups_and_no_other_file(source: Source, tmp_path: Path) -> None:
    output = tmp_path / "out"
    left = iter(range(40))

    def stop(task: object) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(job_of(source, output, output={"path": PATHS["apart"]}, rangeBytes=500), executor=inline(stop))
    assert list(output.rglob("*.npy"))
    other = output / "another" / "train_00000.npy"
    other.parent.mkdir()
    other.write_bytes(b"")
    clean_output(str(output), dry_run=False)
    assert [path for path in output.rglob("*") if path.is_file()] == [other]


@pytest.mark.exhaustive
@pytest.mark.slow
def test_groups_on_ray_have_the_same_bytes(source: Source, tmp_path: Path) -> None:
    layout = {"path": PATHS["apart"], "splits": SPLITS["leading"]}
    run_job(job_of(source, tmp_path / "here", output=layout, rangeBytes=500), executor=inline())
    job = job_of(source, tmp_path / "ray", output=layout, rangeBytes=700)
    done = run_command(command(job, tmp_path, "--executor", "ray", "--processes", "2"), timeout_s=300)
    assert done.returncode == 0, done.stderr
    assert difference(tmp_path / "ray", tmp_path / "here") is None


def plan_warnings(job: TokenizationJob) -> list[str]:
    """What a plan warns of."""
    told: list[Event] = []
    preview_run(job, watch=told.append)
    return [event.message for event in told if isinstance(event, Warned)]


def test_shares_that_leave_all_documents_out_are_named(source: Source, tmp_path: Path) -> None:
    job = job_of(source, tmp_path / "out", shares={"books": "0.0000001%"})
    for attempt in (preview_run, lambda job: run_job(job, executor=inline())):
        with pytest.raises(DataError) as raised:
            attempt(job)
        assert raised.value.reason == "NoDocuments"
        assert "the shares of source.groups leave out all 31 documents" in raised.value.message
        assert "textField" not in raised.value.next_step
        assert "raise the share or tokens of a group" in raised.value.next_step
    assert "that can be used; 1 unusable (InvalidJson" in raised.value.message


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (1, "the share of 0.0347 % that follows from tokens: 1 takes none of its 31 documents"),
        ("0.0001%", "its share of 0.0001 % takes none of its 31 documents"),
    ],
    ids=["tokens", "share"],
)
def test_a_plan_warns_of_a_group_whose_share_takes_nothing(
    share: int | str, words: str, source: Source, tmp_path: Path
) -> None:
    warnings = plan_warnings(job_of(source, tmp_path / "out", shares={"code": "100%", "books": share}))
    assert [message for message in warnings if "group books" in message] == [
        f"source.groups, group books: {words}: raise its share or tokens if that is not wanted"
    ]


def test_a_plan_warns_of_a_large_group_whose_share_may_take_nothing(tmp_path: Path) -> None:
    for group, documents in (("large", 40_000), ("small", 3)):
        (tmp_path / group).mkdir()
        lines = json_lines([f"document number {number}" for number in range(documents)])
        (tmp_path / group / "a.jsonl").write_bytes(lines)
    corpus = Source(tmp_path, {})
    warnings = plan_warnings(job_of(corpus, tmp_path / "out", shares={"large": 1, "small": "100%"}))
    assert [message for message in warnings if "may take none of its about " in message and "group large" in message]
    assert not [message for message in warnings if "group small" in message]
    warnings = plan_warnings(job_of(corpus, tmp_path / "out", shares={"large": "1%", "small": "100%"}))
    assert not [message for message in warnings if "take" in message]
