"""`tokjob blend`: weights by tokens or as given, and only of what Megatron can read."""

from __future__ import annotations

import json
import shlex
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from support.engine.inline import inline
from support.forked_commands import TOKJOB
from support.runs import make_job, run_command
from tokenization_worker import run_job

TEXTS = {"web": 40, "code": 25, "books": 9}
SPLITS = [{"name": "valid", "share": "30%"}, {"name": "train"}]
APART = "{group}/{split}_{index:04d}"


def make(folder: Path, name: str, *, groups: bool = True, **output: Any) -> Path:
    source: dict[str, Any] = {"uris": [str(folder / "src")]}
    if groups:
        source = {"uris": None, "groups": [{"name": group, "uris": [str(folder / "src" / group)]} for group in TEXTS]}
    layout = {"shards": {"tokens": 500}, "splits": SPLITS, **output}
    job = make_job(folder, folder / name, {"source": source, "tokenizer": {"name": "bytes"}}, output=layout)
    run_job(job, executor=inline())
    return folder / name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blend")
    for group, count in TEXTS.items():
        (folder / "src" / group).mkdir(parents=True)
        lines = [json.dumps({"text": f"{group} {number} " + "word " * (number % 13)}) for number in range(count)]
        (folder / "src" / group / "0.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def dataset(folder: Path) -> Path:
    return make(folder, "out", formats=["Npy", "Megatron"], path=APART)


def tokens_of(dataset: Path, split: str) -> dict[str, dict[str, int]]:
    """By group and prefix, from the sizes of the files: two bytes a token."""
    found: dict[str, dict[str, int]] = {}
    for group in TEXTS:
        paths = sorted((dataset / "megatron" / group).glob(f"{split}_*.bin"))
        found[group] = {str(path.with_suffix("")): path.stat().st_size // 2 for path in paths}
    return found


def blend(*arguments: object) -> tuple[int, str, str]:
    done = run_command([str(TOKJOB), "blend", *map(str, arguments)])
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("split", ["valid", "train"])
@pytest.mark.parametrize(
    "weights",
    [{}, {"code": 3}, {"web": 60, "code": 30.5, "books": 10}, {"books": 0}],
    ids=["none", "one", "all", "zero"],
)
def test_each_shard_has_its_part_of_its_groups_weight(dataset: Path, split: str, weights: dict[str, float]) -> None:
    given = [f"--weight={group}={weight}" for group, weight in weights.items()]
    code, out, _ = blend(dataset, "--for", "megatron", "--split", split, *given)
    assert code == 0
    pairs = [line.split(" ") for line in out.splitlines()]
    tokens = tokens_of(dataset, split)
    total = sum(sum(shards.values()) for shards in tokens.values())
    of_group = {
        group: Fraction(weights.get(group, Fraction(100 * sum(shards.values()), total)))
        for group, shards in tokens.items()
    }
    expected = {
        prefix: of_group[group] / sum(of_group.values()) * count / sum(shards.values())
        for group, shards in tokens.items()
        for prefix, count in shards.items()
        if of_group[group]
    }
    assert [prefix for _, prefix in pairs] == list(expected)
    for weight, prefix in pairs:
        assert float(weight) == pytest.approx(float(expected[prefix]), rel=1e-8)
    assert sum(float(weight) for weight, _ in pairs) == pytest.approx(1)


def test_the_last_split_is_taken_and_json_names_groups(dataset: Path) -> None:
    code, out, _ = blend(dataset, "--for", "megatron", "--json")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert {row["group"] for row in rows} == set(TEXTS)
    assert {row["prefix"] for row in rows} == {
        prefix for shards in tokens_of(dataset, "train").values() for prefix in shards
    }


def test_what_cannot_be_blended_is_refused_with_a_way_out(folder: Path, dataset: Path) -> None:
    mixed = make(folder, "mixed", formats=["Megatron"])
    plain = make(folder, "plain", groups=False, formats=["Megatron"])
    arrays = make(folder, "arrays", path=APART)
    cases = [
        (
            (arrays, "--for", "megatron"),
            f"FormatUnavailable: {arrays} has no shards in the format Megatron; it has",
        ),
        ((mixed, "--for", "megatron"), f"GroupsNotApart: {mixed} cannot be blended: its shards hold several groups"),
        ((plain, "--for", "megatron", "--weight", "web=1"), f"GroupUnknown: {plain} has no group 'web'"),
        ((dataset, "--for", "maxtext"), "invalid choice: 'maxtext' (choose from"),
        ((dataset, "--for", "megatron", "--split", "test"), f"SplitUnknown: {dataset} has no split 'test'"),
        ((dataset, "--for", "megatron", "--weight", "web=1", "--weight", "cod=3"), "GroupUnknown: "),
        ((dataset, "--for", "megatron", "--weight", "code=-3"), "found 'code=-3', expected a group and a number"),
        ((dataset, "--for", "megatron", "--weight", "3"), "found '3', expected a group and a number"),
        ((dataset, "--for", "megatron", "--weight", "code=1", "--weight", "code=2"), "given twice for a group"),
        ((dataset, "--for", "megatron", *(f"--weight={group}=0" for group in TEXTS)), "every group has the weight 0"),
        ((folder / "src", "--for", "megatron"), "NotADataset: "),
    ]
    for arguments, words in cases:
        code, out, errors = blend(*arguments)
        assert (code, out) == (2, ""), words
        assert words in errors
        assert "next: " in errors


def test_a_dataset_without_groups_has_one_weight_a_shard(folder: Path) -> None:
    plain = make(folder, "a plain 'one'", groups=False, formats=["Megatron"])
    code, out, errors = blend(plain, "--for", "megatron")
    assert (code, errors) == (0, "")
    words = shlex.split(out)
    sizes = {path.with_suffix(""): path.stat().st_size for path in sorted(plain.rglob("train*.bin"))}
    assert len(sizes) > 1
    assert [Path(prefix) for prefix in words[1::2]] == list(sizes)
    expected = [size / sum(sizes.values()) for size in sizes.values()]
    assert [float(weight) for weight in words[::2]] == pytest.approx(expected)


def test_a_weight_beside_groups_without_one_is_told_as_the_share_that_it_gives(dataset: Path) -> None:
    code, out, errors = blend(dataset, "--for", "megatron", "--weight", "code=70")
    share = sum(float(line.split()[0]) for line in out.splitlines() if "/code/" in line)
    assert code == 0
    assert (
        f"code is {share:.1%} of the blend: weights are relative to each other, and those of web, books are" in errors
    )
    assert blend(dataset, "--for", "megatron", *(f"--weight={group}=1" for group in TEXTS))[2] == ""
