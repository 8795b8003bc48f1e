"""What a wrong manifest is told: every mistake, where it is, what was found and what to write instead."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from support.manifests.api_manifests import Manifest, with_spec, with_value
from support.manifests.api_pod_tables import POD_MISTAKES, PODS_ACCEPTED, PodMistake
from support.manifests.api_tables import ACCEPTED, MISTAKES, Mistake
from support.manifests.rules import all_rules
from tokenization_worker.api import output
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.errors import SpecError


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_mistake_is_named_with_what_to_write(mistake: Mistake) -> None:
    with pytest.raises(SpecError) as caught:
        TokenizationJob.from_object(with_spec(mistake.patch))
    assert caught.value.reason == "SpecInvalid"
    assert any(mistake.line in line for line in caught.value.message.splitlines()[1:]), caught.value.message


@pytest.mark.parametrize("mistake", POD_MISTAKES.values(), ids=POD_MISTAKES.keys())
def test_what_no_pod_may_hold_is_named_with_what_to_write(mistake: PodMistake) -> None:
    with pytest.raises(SpecError) as caught:
        TokenizationJob.from_object(with_spec(mistake.patch))
    lines = [line.strip() for line in caught.value.message.splitlines()[1:]]
    assert [line for line in lines if line.startswith(f"{mistake.field}: ") and mistake.words in line] == lines


NEW_RULES = {
    "replicas": {"workers": {"replicas": 100_000, "minReplicas": 20_000}},
    "chips": {"head": {"resources": {"limits": {"google.com/tpu": 4}}}},
    "image": {"image": "Worker:1"},
    "variable": {"env": [{"name": "1A", "value": "x"}]},
    "selector": {"workers": {"nodeSelector": {"a b": "c d"}}},
}


@pytest.mark.parametrize("patch", NEW_RULES.values(), ids=NEW_RULES.keys())
def test_a_stored_job_from_before_a_rule_is_read(patch: Manifest) -> None:
    job = TokenizationJob.from_object(with_spec(patch), is_stored=True)
    assert TokenizationJob.from_object(job.to_manifest(), is_stored=True) == job
    with pytest.raises(SpecError):
        TokenizationJob.from_object(with_spec(patch))


def test_a_stored_job_is_held_to_the_rules_that_were_always_there() -> None:
    with pytest.raises(SpecError, match="minReplicas is at most replicas"):
        TokenizationJob.from_object(with_spec({"workers": {"minReplicas": 2}}), is_stored=True)


@pytest.mark.parametrize(
    ("root", "line"),
    [
        ({"apiVersion": "v1"}, 'apiVersion: found "v1"; expected tokenization.dev/v1alpha1'),
        ({"kind": "TokenizationJobs"}, 'kind: found "TokenizationJobs"; expected TokenizationJob'),
        ({"kind": None}, "kind: missing; add it"),
        ({"spec": None}, "spec: missing; add it"),
        ({"metadata": {}}, 'metadata.name: missing; add it, for example "fineweb-edu"'),
        ({"metadata": {"name": "Fineweb"}}, 'metadata.name: found "Fineweb"; write a name of at most 36'),
        ({"metadata": {"name": "a" * 37}}, "write a name of at most 36"),
        ({"metadata": {"name": "1a"}}, "beginning with a letter"),
        ({"metadata": {"name": "a-"}}, "ending with a letter or digit"),
        ({"metadata": {"name": 5}}, "metadata.name: found 5 without quotes"),
        ({"specs": {}}, 'specs: unknown field; did you mean "spec"?'),
    ],
    ids=["apiVersion", "kind", "no-kind", "no-spec", "no-name", "case", "long", "digit", "dash", "number", "unknown"],
)
def test_wrong_root_says_what_is_expected(root: Manifest, line: str) -> None:
    with pytest.raises(SpecError) as caught:
        TokenizationJob.from_object(with_spec({}) | root)
    assert line in caught.value.message


def test_all_mistakes_of_a_manifest_are_reported_at_once() -> None:
    wrong = with_spec(
        {
            "source": {"uris": ["http://x", 5], "format": "csv"},
            "documents": {"maxBytes": "1X"},
            "output": {"uri": "s3://x", "path": "/{foo}", "shard": {}},
            "rerunToken": 5,
        }
    )
    with pytest.raises(SpecError) as caught:
        TokenizationJob.from_object(wrong | {"kind": "Job"}, origin="job.yaml")
    lines = caught.value.message.splitlines()
    assert lines[0] == "job.yaml: 9 mistakes"
    assert [line.strip().split(":")[0] for line in lines[1:]] == [
        "kind",
        "spec.source.uris[0]",
        "spec.source.uris[1]",
        "spec.source.format",
        "spec.documents.maxBytes",
        "spec.output.uri",
        "spec.output.path",
        "spec.output.shard",
        "spec.rerunToken",
    ]
    assert "tokjob run --help-all" in caught.value.next_step


def test_every_rule_has_a_manifest_that_breaks_it() -> None:
    broken = []
    for mistake in [*MISTAKES.values(), *POD_MISTAKES.values(), Mistake({}, "")]:
        manifest = with_spec(mistake.patch) | ({} if mistake.patch else {"metadata": {"name": "A"}})
        with pytest.raises(SpecError) as caught:
            TokenizationJob.from_object(manifest)
        broken.append(caught.value.message)
    rules = [rule for rule in all_rules() if rule.holds is not None]
    assert len(rules) > 30
    assert [rule.message for rule in rules if not any(rule.message in message for message in broken)] == []


@pytest.mark.parametrize("patch", (ACCEPTED | PODS_ACCEPTED).values(), ids=(ACCEPTED | PODS_ACCEPTED).keys())
def test_right_manifest_is_accepted(patch: Manifest) -> None:
    TokenizationJob.from_object(with_spec(patch))


def test_accepted_paths_never_give_two_shards_one_name() -> None:
    names = ["a", "a1", "a_1", "1", "11"]
    joints = ["", "0", "_", "x", "/"]
    numbers = ["{index}", "{shard}", "{index:01d}", "{index:02d}", "{shard:03d}"]
    accepted = 0
    for number, left, right in itertools.product(numbers, joints, joints):
        for template in (
            f"{{split}}{left}{number}",
            f"{number}{left}{{split}}",
            f"{{split}}{left}{number}{right}{{split}}",
        ):
            for pair in itertools.permutations(names, 2):
                written = [output.Split(name=pair[0], shards=120), output.Split(name=pair[1])]
                try:
                    output.Output(uri="o", path=template, splits=written)
                except ValueError:
                    break  # the rules on a template do not depend on the names
                accepted += 1
                made = list(shard_names(template, pair, 120))
                assert len(made) == len(set(made)), (template, pair)
    assert accepted > 1000


def shard_names(template: str, splits: tuple[str, ...], shards: int) -> Iterator[str]:
    """The obvious way to name shards; numbers that outgrow their width are left out, as the plan refuses them."""
    for place, split in enumerate(splits):
        for index in range(shards):
            shard = place * shards + index
            name = template.format(split=split, index=index, shard=shard)
            if len(name) == len(template.format(split=split, index=0, shard=0)) or ":0" not in template:
                yield name


@pytest.mark.parametrize("value", [None, {}], ids=["null", "empty"])
def test_optional_blocks_may_be_empty(value: object) -> None:
    assert TokenizationJob.from_object(with_value("workers", value)).spec.workers.replicas == 1
