"""An engine that differs anywhere the probe looks is found, and its verdict is kept for the host."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from support.tokenizer_models import WrongFor, make_spec, make_tokenizer
from tokenization_worker.errors import SpecError
from tokenization_worker.tokenizers.base import Encoded
from tokenization_worker.tokenizers.byte_engine import ByteEngine
from tokenization_worker.tokenizers.checks import engine_check
from tokenization_worker.tokenizers.checks.check_texts import code_point_texts, make_texts
from tokenization_worker.tokenizers.fast_engine import FastokensEngine
from tokenization_worker.tokenizers.load import load_tokenizer

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tokenization" / "engines"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["gpt2", "cl100k_base", "o200k_base"])
def test_the_accelerated_engine_is_identical_on_the_whole_probe(name: str, cache: Path) -> None:
    tokenizer = load_tokenizer(make_spec(name))
    choice = engine_check.choose_engine(tokenizer, "fastokens", 10)
    assert choice == engine_check.EngineChoice("fastokens", "checked against tiktoken")
    (kept,) = cache.iterdir()
    stored = json.loads(kept.read_bytes())
    assert stored["fingerprint"] == tokenizer.fingerprint
    assert stored["verdict"]["identical"]
    assert stored["verdict"]["characters"] > 15_000_000
    assert engine_check.choose_engine(tokenizer, "auto", 10**9).name == "fastokens"


def test_the_difference_that_o200k_is_known_for_is_found() -> None:
    """fastokens without the detour for U+017F."""
    tokenizer = load_tokenizer(make_spec("o200k_base"))
    accelerated = tokenizer.accelerated()
    assert isinstance(accelerated, FastokensEngine)
    unrouted = FastokensEngine(accelerated._native, tokenizer.reference)
    verdict = engine_check.compare_engines(tokenizer.reference, unrouted, make_texts((), ()))
    assert not verdict.identical
    assert "\\u017f" in verdict.difference


@pytest.mark.parametrize("code_point", [0x0, 0x41, 0x17F, 0x378, 0xE000, 0xFFFF, 0x16EA0, 0x10FFFF])
def test_an_engine_that_is_wrong_at_one_code_point_is_found(code_point: int) -> None:
    wrong = WrongFor(ByteEngine(), chr(code_point))
    verdict = engine_check.compare_engines(ByteEngine(), wrong, make_texts((), ("a", "b")))
    assert not verdict.identical
    shown = ascii(chr(code_point))
    assert verdict.difference.startswith(f"{shown} is [")


def test_every_code_point_stands_in_two_contexts() -> None:
    characters = np.frombuffer("".join(code_point_texts()).encode("utf-32-le"), np.uint32)
    counts = np.bincount(characters, minlength=0x110000)
    assert (np.delete(counts, np.arange(0xD800, 0xE000)) >= 3).all()
    assert not counts[0xD800:0xE000].any()


@pytest.mark.parametrize(
    "needle",
    ["<|endoftext|>", " " * 120_000, "'\u017f", "\r\n\r\n\r\n", "é'll", "漢" * 20_000, "1" * 129, "\u0301" * 100],
    ids=["special", "spaces", "long s", "newlines", "contraction", "han", "digits", "marks"],
)
def test_the_probe_has_text_of_each_kind(needle: str) -> None:
    assert any(needle in text for text in make_texts(["<|endoftext|>"], ["tok"]))


def test_the_probe_has_every_token_of_the_vocabulary() -> None:
    vocabulary = [f"[{k}]" for k in range(3000)]
    counts = Counter(token for text in make_texts((), vocabulary) for token in re.findall(r"\[\d+\]", text))
    assert all(counts[token] >= 2 for token in vocabulary)


def test_the_texts_are_the_same_every_time() -> None:
    first, second = (make_texts(["<s>"], ["a", "b"]) for _ in range(2))
    assert all(a == b for a, b in zip(first, second, strict=True))


def test_other_document_ends_are_a_difference() -> None:
    class Shifted(ByteEngine):
        def encode(self, texts: Sequence[str]) -> Encoded:
            ids, ends = super().encode(texts)
            return Encoded(ids, np.maximum(ends - 1, 0))

    verdict = engine_check.compare_engines(ByteEngine(), Shifted(), ["ab", "cd"])
    assert verdict == engine_check.EngineVerdict(False, 2, 4, "only within a batch of texts")


# ---- verdicts


def test_a_verdict_is_kept_and_not_probed_again(cache: Path) -> None:
    wrong = WrongFor(ByteEngine(), "<|endoftext|>")
    tokenizer = make_tokenizer(wrong)
    first = engine_check.find_verdict(tokenizer, wrong)
    seen = wrong.texts_seen
    assert not first.identical
    assert engine_check.find_verdict(tokenizer, wrong) == first
    assert wrong.texts_seen == seen
    assert [path.suffix for path in cache.iterdir()] == [".json"]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b'{"verdict": {}}',
        b'{"verdict": {"identical": "yes", "texts": 1, "characters": 1, "difference": ""}}',
    ],
)
def test_a_damaged_entry_counts_as_none(cache: Path, damage: bytes) -> None:
    wrong = WrongFor(ByteEngine(), "<|endoftext|>")
    tokenizer = make_tokenizer(wrong)
    verdict = engine_check.find_verdict(tokenizer, wrong)
    (entry,) = cache.iterdir()
    entry.write_bytes(damage)
    assert engine_check.read_verdict(tokenizer) is None
    assert engine_check.find_verdict(tokenizer, wrong) == verdict == engine_check.read_verdict(tokenizer)


def test_another_tokenizer_or_version_has_another_entry() -> None:
    wrong = WrongFor(ByteEngine(), "<|endoftext|>")
    engine_check.find_verdict(make_tokenizer(wrong), wrong)
    assert engine_check.read_verdict(make_tokenizer(wrong)) is not None
    assert engine_check.read_verdict(make_tokenizer(wrong, fingerprint="g")) is None
    newer = make_tokenizer(wrong)
    newer.libraries["wrong"] = "2"
    assert engine_check.read_verdict(newer) is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    wrong = WrongFor(ByteEngine(), "<|endoftext|>")
    assert not engine_check.find_verdict(make_tokenizer(wrong), wrong).identical


# ---- choice


class Named(ByteEngine):
    """The byte engine under another name."""

    def __init__(self, name: str) -> None:
        self.name = name


def test_little_text_is_left_to_the_reference() -> None:
    tokenizer = make_tokenizer(Named("fastokens"), reference=Named("tiktoken"))
    assert engine_check.choose_engine(tokenizer, "auto", 1_000_000) == engine_check.EngineChoice(
        "tiktoken", "little text"
    )
    assert "was checked on this machine yet" in engine_check.choose_engine(tokenizer, "auto", 20_000_000).reason
    assert engine_check.choose_engine(tokenizer, "auto", 10**9).name == "fastokens"
    assert engine_check.choose_engine(tokenizer, "auto", 20_000_000).name == "fastokens"
    assert engine_check.choose_engine(tokenizer, "reference", 10**9).name == "tiktoken"


def test_a_differing_engine_is_not_chosen_and_refused_when_asked_for() -> None:
    tokenizer = make_tokenizer(WrongFor(ByteEngine(), "<|endoftext|>"))
    choice = engine_check.choose_engine(tokenizer, "auto", 10**9)
    assert choice.name == "bytes"
    assert "wrong gives other tokens" in choice.reason
    with pytest.raises(SpecError, match="EngineDiffers: engine wrong gives other tokens than bytes"):
        engine_check.choose_engine(tokenizer, "fastokens", 10**9)


def test_without_an_accelerated_engine_the_reference_is_used() -> None:
    tokenizer = load_tokenizer(make_spec("bytes"))
    assert engine_check.choose_engine(tokenizer, "auto", 10**9).name == "bytes"
    with pytest.raises(SpecError, match="EngineUnavailable"):
        engine_check.choose_engine(tokenizer, "fastokens", 10**9)


def test_engines_are_found_by_name() -> None:
    fast = Named("fastokens")
    tokenizer = make_tokenizer(fast)
    assert engine_check.engine_by_name(tokenizer, "fastokens") is fast
    assert engine_check.engine_by_name(tokenizer, "bytes") is tokenizer.reference
    assert engine_check.engine_by_name(tokenizer, "reference") is tokenizer.reference
    with pytest.raises(SpecError, match="EngineUnavailable: there is no engine 'tiktoken'"):
        engine_check.engine_by_name(tokenizer, "tiktoken")
