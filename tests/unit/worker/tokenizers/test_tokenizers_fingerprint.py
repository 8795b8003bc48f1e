"""A fingerprint stands for behaviour: golden values, and what does and does not change it."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.tokenizer_models import make_spec, train_byte_level, train_sentencepiece, write_json
from tokenization_worker.tokenizers.fingerprint import fingerprint_json, fingerprint_model, fingerprint_ranks
from tokenization_worker.tokenizers.load import load_tokenizer


@pytest.mark.parametrize(
    ("name", "fingerprint"),
    [
        ("bytes", "4d658b89183ee875d7eace381610339a2a4130902eb17ccabfddf9cb44a37afd"),
        ("gpt2", "5e17e655d7c437e7569cff0436167cfadfa3568272fb763b5c1e5293b62fcb20"),
        ("cl100k_base", "67356739dee5f522696c9684a155536a15aca5036c5cae5d8563cd630df5cbbf"),
    ],
)
def test_fingerprints_are_what_they_have_always_been(name: str, fingerprint: str) -> None:
    """A change here makes every existing dataset of that tokenizer a conflict."""
    assert load_tokenizer(make_spec(name)).fingerprint == fingerprint


def test_names_and_delimiters_do_not_change_it() -> None:
    specs = [
        make_spec("gpt2"),
        make_spec("r50k_base"),
        make_spec("davinci"),
        make_spec("gpt2", position="After"),
        make_spec("gpt2", position="None"),
    ]
    assert len({load_tokenizer(spec).fingerprint for spec in specs}) == 1


def test_different_encodings_differ() -> None:
    names = ("bytes", "gpt2", "p50k_base", "p50k_edit", "cl100k_base", "o200k_base", "o200k_harmony")
    assert len({load_tokenizer(make_spec(name)).fingerprint for name in names}) == len(names)


def test_every_part_of_a_rank_encoding_changes_it() -> None:
    engine = load_tokenizer(make_spec("bytes")).reference
    other = load_tokenizer(make_spec("gpt2")).reference
    ranks = {bytes([k]): k for k in range(256)}
    prints = [
        fingerprint_ranks(ranks, "p", {"e": 256}, engine),
        fingerprint_ranks(ranks | {b"ab": 256}, "p", {"e": 256}, engine),
        fingerprint_ranks({bytes([k]): 255 - k for k in range(256)}, "p", {"e": 256}, engine),
        fingerprint_ranks(ranks, "q", {"e": 256}, engine),
        fingerprint_ranks(ranks, "p", {"e": 257}, engine),
        fingerprint_ranks(ranks, "p", {"f": 256}, engine),
        fingerprint_ranks(ranks, "p", {"e": 256}, other),
    ]
    assert len(set(prints)) == len(prints)
    assert fingerprint_ranks(dict(reversed(ranks.items())), "p", {"e": 256}, engine) == prints[0]


def test_of_a_tokenizer_json_what_encodes_counts_and_the_rest_does_not() -> None:
    engine = load_tokenizer(make_spec("bytes")).reference
    document = train_byte_level([{"content": "</s>"}, {"content": "<s>"}])
    base = fingerprint_json(document, engine)
    same = [
        dict(reversed(document.items())),
        document | {"decoder": None, "post_processor": None, "version": "2", "padding": None},
        document | {"added_tokens": document["added_tokens"][::-1]},
    ]
    other = [
        document | {"normalizer": {"type": "NFC"}},
        document | {"pre_tokenizer": {"type": "Whitespace"}},
        document | {"added_tokens": document["added_tokens"][:1]},
        document | {"model": document["model"] | {"byte_fallback": True}},
    ]
    assert {fingerprint_json(variant, engine) for variant in same} == {base}
    assert base not in {fingerprint_json(variant, engine) for variant in other}


def test_two_sentencepiece_models_differ_and_one_is_itself(tmp_path: Path) -> None:
    first = train_sentencepiece(tmp_path / "a.model")
    copy = tmp_path / "copy.model"
    copy.write_bytes(first.read_bytes())
    second = train_sentencepiece(tmp_path / "b.model", vocab_size=420)
    prints = [load_tokenizer(make_spec(uri=path)).fingerprint for path in (first, copy, second)]
    assert prints[0] == prints[1] != prints[2]
    assert fingerprint_model("a", b"x", load_tokenizer(make_spec("bytes")).reference) != fingerprint_model(
        "b", b"x", load_tokenizer(make_spec("bytes")).reference
    )


def test_libraries_are_recorded(tmp_path: Path) -> None:
    path = write_json(tmp_path / "t.json", train_byte_level([{"content": "</s>"}]))
    assert set(load_tokenizer(make_spec("gpt2")).libraries) == {"fastokens", "regex", "tiktoken"}
    assert set(load_tokenizer(make_spec(uri=path)).libraries) == {"fastokens", "tokenizers"}
    assert load_tokenizer(make_spec("bytes")).libraries == {}
