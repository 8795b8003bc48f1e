"""The reference is tiktoken for any text, and the accelerated engine gives its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import regex
import tiktoken

from tokenization_worker.api.data import DelimiterPosition, TokenizerSpec
from tokenization_worker.tokenizers.base import Encoded, Tokenizer
from tokenization_worker.tokenizers.checks.sample import is_sampled
from tokenization_worker.tokenizers.load import load_tokenizer
from tokenization_worker.tokenizers.tiktoken_engine import TiktokenEngine, find_long_blanks

pytestmark = pytest.mark.slow

ENCODINGS = ("gpt2", "cl100k_base", "o200k_base")


def load(name: str) -> Tokenizer:
    return load_tokenizer(TokenizerSpec(name, None, None, (), None, DelimiterPosition.BEFORE))


def split(encoded: Encoded) -> list[list[int]]:
    return [part.tolist() for part in np.split(encoded.ids, encoded.ends[:-1])] if len(encoded.ends) else []


def reference_of(name: str) -> TiktokenEngine:
    engine = load(name).reference
    assert isinstance(engine, TiktokenEngine)
    return engine


@pytest.fixture(params=ENCODINGS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


TEXTS = [
    "",
    "hello world",
    "<|endoftext|>",
    "don't DON'T we'll they’re",
    "  indented\n\n\tcode()  \r\n",
    "Zażółć gęślą jaźń 他们为什么 한국어 👩‍👩‍👧‍👦",
    "0123456789 " * 20,
    "",
    "a" * 5000,
]


def test_reference_is_encode_ordinary_of_tiktoken(name: str) -> None:
    encoding = tiktoken.Encoding(**_constructor(name))
    encoded = reference_of(name).encode(TEXTS)
    assert encoded.ids.dtype == np.uint32
    assert encoded.ends.dtype == np.int64
    assert split(encoded) == [encoding.encode_ordinary(text) for text in TEXTS]


def _constructor(name: str) -> dict[str, object]:
    from tokenization_worker.tokenizers.ranks.encodings import read_named

    table = read_named(name)
    return {
        "name": name,
        "pat_str": table.pattern,
        "mergeable_ranks": table.ranks,
        "special_tokens": table.special_tokens,
    }


def test_accelerated_engine_gives_the_same_tokens_in_the_same_shape(name: str) -> None:
    tokenizer = load(name)
    accelerated = tokenizer.accelerated()
    assert accelerated is not None
    assert accelerated is tokenizer.accelerated()
    expected, found = tokenizer.reference.encode(TEXTS), accelerated.encode(tuple(TEXTS))
    assert found.ids.dtype == np.uint32
    assert found.ends.dtype == np.int64
    assert split(found) == split(expected)


@pytest.mark.parametrize("kind", ["reference", "accelerated"])
def test_no_texts_give_no_tokens_and_no_ends(kind: str) -> None:
    tokenizer = load("gpt2")
    engine = tokenizer.reference if kind == "reference" else tokenizer.accelerated()
    assert engine is not None
    ids, ends = engine.encode([])
    assert (len(ids), len(ends), ids.dtype, ends.dtype) == (0, 0, np.uint32, np.int64)


def test_a_contraction_with_a_long_s_comes_out_as_the_reference_has_it(name: str) -> None:
    tokenizer = load(name)
    accelerated = tokenizer.accelerated()
    assert accelerated is not None
    texts = ["plain", "it'ſ", "", "ALL'ſ well 'ſ", "ſ", "plain again", "wa'ſ 'ſ'ſ", "a'ſ'So I'ſ T'ſ'ms", "tail"]
    assert split(accelerated.encode(texts)) == split(tokenizer.reference.encode(texts))


def test_texts_without_the_risky_characters_never_reach_the_reference() -> None:
    from tokenization_worker.tokenizers.fast_engine import FastokensEngine

    class Refusing:
        name = "refusing"

        def encode(self, texts: Sequence[str]) -> Encoded:
            raise AssertionError(f"asked for {texts}")

    built = load("o200k_base").accelerated()
    assert isinstance(built, FastokensEngine)
    alone = FastokensEngine(built._native, Refusing(), has_risk=True)
    texts = ["it's", "漢字", "Weſt ' ſo"]
    assert split(alone.encode(texts)) == split(built.encode(texts))


# ---- blanks without end


def piecewise(name: str, text: str) -> list[int]:
    """The slow obvious oracle: every piece of the pattern on its own."""
    table = _constructor(name)
    encoding = tiktoken.Encoding(**table)
    pieces = regex.findall(table["pat_str"], text)
    return [token for piece in pieces for token in encoding._encode_single_piece(piece)]


BLANKS = {
    "spaces": " " * 130_001,
    "newlines": "\n" * 130_001,
    "mixed": " \n" * 60_007,
    "crlf": "\r\n" * 60_000,
    "tabs, a newline near the end": "\t" * 120_000 + "\n   ",
    "no-break spaces": "\u00a0" * 110_000,
}
SURROUNDINGS = {
    "nothing": ("", ""),
    "words": ("one two", "three  four"),
    "punctuation that takes newlines": ("def f(x):  !!", "\n}\n"),
    "blanks before punctuation": ("foo \n  !!", "--"),
    "digits": ("  12345", "678901"),
    "new code points": ("\u088f\u0c5c 'x\ua7ce", "\U00016ea0  \u1acf"),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("around", SURROUNDINGS.values(), ids=SURROUNDINGS)
@pytest.mark.parametrize("run", BLANKS.values(), ids=BLANKS)
def test_around_a_long_run_of_blanks_the_tokens_are_those_of_tiktoken(
    name: str, run: str, around: tuple[str, str]
) -> None:
    text = around[0] + run + around[1]
    assert find_long_blanks(text)
    engine = reference_of(name)
    assert engine._encode_one(text).tolist() == engine.encode_plainly(text).tolist()


@pytest.mark.sampled(2)
def test_a_million_blanks_are_encoded_where_tiktoken_panics(name: str) -> None:
    tokenizer = load(name)
    accelerated = tokenizer.accelerated()
    assert accelerated is not None
    text = "before, " + " " * 1_000_003 + "\n\n" + "between " + " \t" * 500_001 + "after"
    expected = piecewise(name, text)
    assert tokenizer.reference.encode(["x", text]).ids.tolist()[1:] == expected
    assert accelerated.encode([text]).ids.tolist() == expected


def test_a_panic_that_no_run_of_blanks_announces_is_survived(capfd: pytest.CaptureFixture[str]) -> None:
    class PanicException(BaseException):
        __module__ = "pyo3_runtime"

    class Panicking:
        def __init__(self, encoding: tiktoken.Encoding) -> None:
            self._encode_single_piece = encoding._encode_single_piece

        def encode_to_numpy(self, text: str, *, disallowed_special: object) -> object:
            if text:
                raise PanicException
            return np.empty(0, np.uint32)

    table = _constructor("gpt2")
    engine = TiktokenEngine(Panicking(tiktoken.Encoding(**table)), table["pat_str"])  # type: ignore[arg-type]
    text = "what if  it panics\n\n on this?"
    assert engine.encode([text]).ids.tolist() == reference_of("gpt2").encode([text]).ids.tolist()


def test_other_base_exceptions_pass_through() -> None:
    class Interrupted:
        def encode_to_numpy(self, text: str, *, disallowed_special: object) -> object:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TiktokenEngine(Interrupted(), "").encode(["x"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("", []),
        (" " * 49_999, []),
        ("a" * 200_000, []),
        ("a" + " " * 100_000 + "b", [(1, 100_001)]),
        (" " * 250_000, [(0, 250_000)]),
        ("x" * 70_000 + "\n" * 99_999 + "y" * 70_000 + " " * 150_000, [(70_000, 169_999), (239_999, 389_999)]),
        (" x" * 100_000, []),
    ],
    ids=["empty", "short", "letters", "inside", "all", "two", "alternating"],
)
def test_long_blanks_are_found_whole(text: str, runs: list[tuple[int, int]]) -> None:
    assert find_long_blanks(text) == runs


# ---- bytes, showing, sampling


def test_bytes_are_the_bytes_of_utf8() -> None:
    tokenizer = load("bytes")
    texts = ["", "aé漢👩", "\x00\n", ""]
    ids, ends = tokenizer.reference.encode(texts)
    assert ids.tolist() == list("".join(texts).encode())
    assert ends.tolist() == [0, 10, 12, 12]
    assert (ids.dtype, ends.dtype) == (np.uint32, np.int64)
    assert (tokenizer.vocab_size, tokenizer.delimiters.only, tokenizer.accelerated()) == (257, 256, None)
    assert tokenizer.decode([104, 105, 256, 255, 300]) == "hi<|endoftext|>\ufffd\ufffd"


@pytest.mark.parametrize("name", [*ENCODINGS, "bytes"])
def test_decode_shows_text_specials_and_broken_ids(name: str) -> None:
    tokenizer = load(name)
    assert tokenizer.delimiters.only is not None
    ids = np.array([tokenizer.delimiters.only, *tokenizer.reference.encode(["naïve 漢字"]).ids], np.uint32)
    assert tokenizer.decode(ids) == "<|endoftext|>naïve 漢字"  # type: ignore[arg-type]
    assert tokenizer.decode([tokenizer.vocab_size + 5]) == "\ufffd"
    assert tokenizer.decode([]) == ""


def test_about_one_document_in_so_many_is_sampled() -> None:
    positions = np.cumsum(np.random.default_rng(7).integers(1, 600, 20_000))
    files = np.arange(20_000) // 5_000
    for one_in in (2, 10, 64):
        assert is_sampled(positions, files, one_in).mean() == pytest.approx(1 / one_in, rel=0.2)
    assert is_sampled(positions, files, 1).all()


def test_the_same_documents_are_sampled_whatever_the_batches() -> None:
    positions, files = np.arange(1_000) * 37, np.full(1_000, 3)
    together = is_sampled(positions, files, 16)
    apart = np.concatenate([is_sampled(positions[i : i + 7], files[i : i + 7], 16) for i in range(0, 1_000, 7)])
    assert (together == apart).all()
    assert not (together == is_sampled(positions, files + 1, 16)).all()
