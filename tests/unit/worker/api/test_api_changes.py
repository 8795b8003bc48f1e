"""A job that differs from what is at its output is told in the words of both manifests."""

from __future__ import annotations

from typing import Any

import pytest

from support.manifests.api_manifests import MINIMAL, Manifest, canonical, load, with_spec
from tokenization_worker.api.changes import asked_fields, describe_changes


def told(
    was: Manifest, now: Manifest, *, tokenizer: tuple[str, str] = ("a" * 64, "a" * 64), old: bool = False
) -> list[str]:
    before, after = load(was), load(now)
    resolved: list[Any] = []
    for job, fingerprint in ((before, tokenizer[0]), (after, tokenizer[1])):
        data: dict[str, Any] = canonical(job)
        data["tokenizer"]["fingerprint"] = fingerprint
        resolved.append(data)
    return describe_changes(*resolved, {} if old else asked_fields(before), asked_fields(after))


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({}, []),
        (
            {"output": {"shards": {"tokens": 5}}},
            ["output.shards.tokens: the job says 5, the output has 100000000 (the default)"],
        ),
        ({"source": {"textField": "é"}}, ["source.textField: the job says é, the output has text (the default)"]),
        (
            {"documents": {"maxBytes": "1Mi"}},
            ["documents.maxBytes: the job says 1Mi, the output has 64Mi (the default)"],
        ),
        ({"documents": {"maxBytes": 67_108_864}}, []),
        (
            {"output": {"splits": [{"name": "val", "share": "0.5%"}, {"name": "train"}]}},
            [
                "output.splits: the job says [{name: val, share: 0.5%}, {name: train}], the output has "
                "[{name: train}] (the default)"
            ],
        ),
        (
            {"source": {"format": "Text", "documentSeparator": "x y\n"}},
            [
                "source.format: the job says Text, the output has Auto (the default)",
                'source.documentSeparator: the job says "x y\\n", the output has absent',
            ],
        ),
    ],
    ids=["same", "number", "text", "quantity", "same-quantity", "splits", "two"],
)
def test_a_change_is_told_as_both_manifests_have_it(patch: Manifest, words: list[str]) -> None:
    assert told(MINIMAL, with_spec(patch)) == words


def test_another_tokenizer_is_told_by_its_name_and_by_nothing_that_follows_from_it() -> None:
    was, now = ({"tokenizer": {"name": name}} for name in ("cl100k_base", "gpt2"))
    words = told(with_spec(was), with_spec(now), tokenizer=("c" * 64, "f" * 64))
    assert words == ["tokenizer.name: the job says gpt2, the output has cl100k_base"]


def test_a_file_in_place_of_a_name_is_told() -> None:
    now = with_spec({"tokenizer": {"uri": "/t/tokenizer.json"}})
    del now["spec"]["tokenizer"]["name"]
    was = with_spec({"tokenizer": {"name": "gpt2"}})
    words = told(was, now, tokenizer=("c" * 64, "f" * 64))
    assert words == [
        "tokenizer.uri: the job says /t/tokenizer.json, the output has absent",
        "tokenizer.name: the job says absent, the output has gpt2",
    ]


def test_a_tokenizer_whose_file_has_changed_is_told() -> None:
    job = with_spec({"tokenizer": {"name": "gpt2"}})
    [words] = told(job, job, tokenizer=("c" * 64, "f" * 64))
    assert words.startswith("tokenizer.name: gpt2 gives other tokens: was the tokenizer with fingerprint cccc")


def test_what_an_earlier_version_wrote_is_told_by_its_resolved_values() -> None:
    now = with_spec({"output": {"shards": {"tokens": 5}}, "source": {"idField": "key"}})
    words = told(MINIMAL, now, old=True)
    assert words == [
        "output.shards.tokens: the job says 5, the output has 100000000",
        "source.idField: the job says key, the output has id",
    ]


def test_values_are_as_written_and_places_are_left_out() -> None:
    asked = asked_fields(load(with_spec({"documents": {"maxBytes": "1Mi"}, "rangeBytes": "1Mi"})))
    assert asked["documents.maxBytes"] == "1Mi"
    assert not {"source.uris", "output.uri", "rangeBytes"} & asked.keys()
