"""Text that spells a special token is ordinary text, with every kind of tokenizer and every engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.tokenizer_models import (
    LLAMA3_PATTERN,
    make_spec,
    train_byte_level,
    train_sentencepiece,
    write_json,
    write_ranks,
)
from tokenization_worker.errors import SpecError
from tokenization_worker.tokenizers.base import Tokenizer
from tokenization_worker.tokenizers.delimiter import find_special
from tokenization_worker.tokenizers.load import load_tokenizer

KINDS = ("gpt2", "cl100k_base", "o200k_base", "o200k_harmony", "bytes", "tokenizer.json", "sentencepiece", "ranks")
ADDED = [
    {"content": "<|endoftext|>", "special": False},
    {"content": "<|im_start|>"},
    {"content": "<tool>", "special": False},
]


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    """One tokenizer of each kind."""
    folder = tmp_path_factory.mktemp("models")
    specs = {name: make_spec(name) for name in KINDS[:5]}
    specs["tokenizer.json"] = make_spec(uri=write_json(folder / "tokenizer.json", train_byte_level(ADDED)))
    specs["sentencepiece"] = make_spec(uri=train_sentencepiece(folder / "sp.model"))
    specs["ranks"] = make_spec(
        uri=write_ranks(folder / "own.tiktoken", 2000),
        pattern=LLAMA3_PATTERN,
        specials={"<|end_of_text|>": 2000, "<|begin_of_text|>": 2001},
    )
    return {kind: load_tokenizer(spec) for kind, spec in specs.items()}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_special_ids_never_come_from_text(kind: str, tokenizers: dict[str, Tokenizer], data: st.DataObject) -> None:
    tokenizer = tokenizers[kind]
    names = sorted(tokenizer.special_tokens)
    spelled = st.sampled_from([*names, *(name[:-1] for name in names), "<|endoftext|>", "</s>", "<s>", "[SEP]"])
    text = data.draw(st.lists(st.one_of(spelled, st.text(max_size=8), st.just(" "))).map("".join))
    special = np.array([*tokenizer.special_tokens.values(), tokenizer.delimiters.only], np.uint32)
    engines = [tokenizer.reference, *filter(None, [tokenizer.accelerated()])]
    encoded = [engine.encode([text, text]) for engine in engines]
    for ids, ends in encoded:
        assert not np.isin(ids, special).any()
        assert ends[1] == 2 * ends[0] == len(ids)
        assert (ids < tokenizer.vocab_size).all()
        assert np.array_equal(ids, encoded[0].ids)


@pytest.mark.parametrize("kind", KINDS)
def test_the_delimiter_is_a_special_below_the_vocabulary_size(kind: str, tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers[kind]
    assert tokenizer.delimiters.only in tokenizer.special_tokens.values()
    assert max(tokenizer.special_tokens.values()) < tokenizer.vocab_size


@pytest.mark.parametrize("kind", ["gpt2", "cl100k_base", "o200k_base", "tokenizer.json", "ranks"])
def test_these_kinds_have_an_accelerated_engine(kind: str, tokenizers: dict[str, Tokenizer]) -> None:
    accelerated = tokenizers[kind].accelerated()
    assert accelerated is not None
    assert accelerated.name == "fastokens"


def test_an_added_token_that_is_not_special_still_matches(tokenizers: dict[str, Tokenizer]) -> None:
    assert 602 in tokenizers["tokenizer.json"].reference.encode(["a <tool> b"]).ids
    assert 600 not in tokenizers["tokenizer.json"].reference.encode(["a <|endoftext|> b"]).ids


def test_a_model_whose_search_finds_the_delimiter_is_refused(tmp_path: Path) -> None:
    pieces = [["<unk>", 0.0], ["</s>", 0.0], ["a", -2.0], ["<", -3.0], ["/", -3.0], ["s", -3.0], [">", -3.0]]
    document = train_byte_level([{"content": "</s>", "id": 1}]) | {
        "model": {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": False},
        "pre_tokenizer": None,
        "decoder": None,
    }
    with pytest.raises(SpecError, match=r"TokenizerUnsafe: the text '</s>' becomes the special token 1"):
        load_tokenizer(make_spec(uri=write_json(tmp_path / "t.json", document)))


def test_a_user_defined_symbol_as_delimiter_is_refused(tmp_path: Path) -> None:
    model = train_sentencepiece(tmp_path / "sp.model", user_defined_symbols=["<sep>"])
    with pytest.raises(SpecError, match=r"TokenizerUnsafe: the text '<sep>'"):
        load_tokenizer(make_spec(uri=model, token="<sep>"))
    assert load_tokenizer(make_spec(uri=model)).delimiters.only == 2


def test_an_engine_that_yields_a_special_is_found(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["bytes"]
    found = find_special(tokenizer.reference, {"abc": 99}, {99})
    assert found == ("abc", 99)
