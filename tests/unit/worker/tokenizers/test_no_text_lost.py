"""No tokenizer.json of any kind loses text in silence: its tokens decode to the text, or it or the document is refused.

The decoder here knows the vocabulary alone: token names without their affixes, bytes of byte-level text and of the
fallback. A token for unknown text stands for any characters. White space may be missing where the tokenizer says so.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.tokenizer_models import ADDED_FLAGS, make_spec, write_json
from tokenization_worker.api.data import Delimiters
from tokenization_worker.errors import SpecError
from tokenization_worker.pipelines.tokenize.ranges.encode import Encoder, LosesText
from tokenization_worker.tokenizers.base import KillsEngine, Tokenizer
from tokenization_worker.tokenizers.checks.sample import is_sampled
from tokenization_worker.tokenizers.fast_engine import printable_bytes
from tokenization_worker.tokenizers.load import load_tokenizer

LETTERS = "abcdefgh ▁"
ALPHABET = [*"abcdefgh", " ", "  ", "q", "é", "日", "\U0001f600", "\n", "A", "B", ",", "(", "\u0378"]
"""Of the texts: q, é, 日, the smiley and others are in no vocabulary without bytes. U+0378 is no character, and of no
script."""

_LACKING = (ord("q"), "é".encode()[0])
"""Bytes that byte-level vocabularies lack."""

STAND_INS = {byte: chr(shown) for byte, shown in printable_bytes().items()}
BYTE_OF = {shown: byte for byte, shown in STAND_INS.items()}

LEVELS = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
NORMALIZERS: dict[str, Any] = {
    "none": None,
    "empty": {"type": "Sequence", "normalizers": []},
    "lowercase": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]},
    "marks": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
}
CUTTERS: dict[str, Any] = {
    "whole": None,
    "levels": LEVELS,
    "words": {"type": "WhitespaceSplit"},
    "commas": {"type": "Split", "pattern": {"Regex": "[cq]"}, "behavior": "Removed", "invert": False},
    "scripts": {"type": "UnicodeScripts"},
    "marks and punctuation": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
            {"type": "Punctuation", "behavior": "Removed"},
        ],
    },
}
ADDED: dict[str, list[dict[str, Any]]] = {
    "no token": [],
    "plain": [{"content": "é日"}],
    "greedy": [{"content": "ab", "lstrip": True, "rstrip": True}],
    "alone": [{"content": "q", "single_word": True}],
    "blanks": [{"content": "▁▁"}],
}


def names_of(byte_level: bool, fallback: str) -> list[str]:
    letters = [STAND_INS[byte] for byte in range(256) if byte not in _LACKING] if byte_level else list(LETTERS)
    some = {"off": 0, "none": 0, "ascii": 128, "full": 256}[fallback]
    return [*letters, *(f"<0x{byte:02X}>" for byte in range(some))]


def make_model(kind: str, *, byte_level: bool, affix: str, fallback: str, unknown: str) -> dict[str, Any]:
    names = names_of(byte_level, fallback)
    names += [f"##{each}" for each in "abcd"] if affix == "prefix" or kind == "WordPiece" else []
    names += [f"{each}</w>" for each in "abcd"] if affix == "suffix" else []
    names += ["ab", "cab", "▁▁"] + (["<unk>"] if unknown == "present" else [])
    vocabulary = {name: number for number, name in enumerate(dict.fromkeys(names))}
    token = None if unknown == "none" else "<unk>"
    if kind == "BPE" or kind == "untyped":
        marks = {
            "continuing_subword_prefix": "##" if affix == "prefix" else None,
            "end_of_word_suffix": "</w>" if affix == "suffix" else None,
        }
        merges = [] if affix == "prefix" or byte_level else ["a b", "c ab", "▁ ▁"]
        kinds = {"type": "BPE"} if kind == "BPE" else {}
        return (
            kinds
            | marks
            | {
                "vocab": vocabulary,
                "merges": merges,
                "unk_token": token,
                "byte_fallback": fallback != "off",
                "dropout": None,
                "fuse_unk": False,
            }
        )
    if kind == "Unigram":
        scores = [[name, -float(number)] for name, number in vocabulary.items()]
        number = vocabulary.get("<unk>") if unknown == "present" else None
        return {"type": kind, "vocab": scores, "unk_id": number, "byte_fallback": fallback != "off"}
    extra = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 20} if kind == "WordPiece" else {}
    return {"type": kind, "vocab": vocabulary, "unk_token": "<unk>"} | extra


def make_document(
    kind: str, affix: str, fallback: str, unknown: str, normalizer: str, cutter: str, added: str
) -> dict[str, Any]:
    model = make_model(kind, byte_level=cutter == "levels", affix=affix, fallback=fallback, unknown=unknown)
    size = len(model["vocab"])
    tokens = [{"content": "<|endoftext|>"}, *({"special": False} | each for each in ADDED[added])]
    numbered: list[dict[str, Any]] = []
    for token in tokens:
        known = model["vocab"].get(token["content"]) if isinstance(model["vocab"], dict) else None
        free = size + sum(each["id"] >= size for each in numbered)
        numbered.append(ADDED_FLAGS | {"id": free if known is None else known} | token)
    return {
        "version": "1.0",
        "added_tokens": numbered,
        "normalizer": NORMALIZERS[normalizer],
        "pre_tokenizer": CUTTERS[cutter],
        "model": model,
    }


def all_kinds() -> Iterator[tuple[str, ...]]:
    bpe = product(("BPE", "untyped"), ("no affix", "prefix", "suffix"), ("off", "none", "ascii", "full"))
    models = [
        *((*each, unknown) for each in bpe for unknown in ("none", "missing", "present")),
        *(
            ("Unigram", "no affix", fallback, unknown)
            for fallback in ("off", "full")
            for unknown in ("none", "present")
        ),
        *(
            (kind, "no affix", "off", unknown)
            for kind in ("WordLevel", "WordPiece")
            for unknown in ("missing", "present")
        ),
    ]
    surroundings = list(product(NORMALIZERS, CUTTERS, ADDED))
    rng = random.Random(30)
    for model in models:  # each model in eight of the 120 surroundings
        for surrounding in rng.sample(surroundings, 8):
            yield (*model, *surrounding)


KINDS = list(all_kinds())


def draw_texts(rng: random.Random) -> list[str]:
    known = ["abcab h", "cab ab", "a b c d", ""]
    return known + ["".join(rng.choices(ALPHABET, k=rng.randrange(1, 16))) for _ in range(20)]


def find_pattern(tokenizer: Tokenizer, document: dict[str, Any], ids: list[int]) -> re.Pattern[bytes]:
    """What the tokens say of the text; unknown text is anything. Without white space where the tokenizer removes it."""
    vocabulary = document["model"]["vocab"]
    names = dict(enumerate(name for name, _ in vocabulary)) if isinstance(vocabulary, list) else invert(vocabulary)
    contents = {token["id"]: token["content"] for token in document["added_tokens"]}
    is_byte_level = document["pre_tokenizer"] == LEVELS
    parts: list[bytes | None] = []
    for token in ids:
        if token in contents:
            parts.append(contents[token].encode())
        elif token == tokenizer.unknown_id:
            parts.append(None)
        else:
            parts.append(bytes_of(names[token], is_byte_level=is_byte_level))
    runs = [b"".join(part or b"" for part in run) for _, run in groupby(parts, key=lambda part: part is None)]
    if tokenizer.removes:
        runs = list(map(squeeze, runs))
    if None in parts and document["model"].get("byte_fallback"):
        # The library puts a token for unknown text behind the bytes of the characters that follow it.
        known = b"".join(runs)
        return re.compile(b"(?s:.*)".join([b"", *(re.escape(known[at : at + 1]) for at in range(len(known))), b""]))
    unknown = b"(?s:.*)" if tokenizer.removes else b"(?s:.+)"
    is_unknown = [key for key, _ in groupby(parts, key=lambda part: part is None)]
    return re.compile(b"".join(unknown if yes else re.escape(run) for yes, run in zip(is_unknown, runs, strict=True)))


def squeeze(text: bytes) -> bytes:
    """Without blanks, line breaks and the bytes of the mark, which no other character here has."""
    return text.translate(None, b" \n" + "▁".encode())


def invert(vocabulary: dict[str, int]) -> dict[int, str]:
    return {number: name for name, number in vocabulary.items()}


def bytes_of(name: str, *, is_byte_level: bool) -> bytes:
    if fallback := re.fullmatch("<0x([0-9A-F]{2})>", name):
        return bytes([int(fallback[1], 16)])
    name = name.removeprefix("##").removesuffix("</w>")
    return bytes(BYTE_OF[each] for each in name) if is_byte_level else name.encode()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """How often each outcome came."""
    folder, counts = tmp_path_factory.mktemp("kinds"), Counter[str]()
    for kind in KINDS:
        counts.update(try_kind(folder, kind))
    return counts


def try_kind(folder: Path, kind: tuple[str, ...]) -> Iterator[str]:
    document = make_document(*kind)
    try:
        tokenizer = load_tokenizer(make_spec(uri=write_json(folder / f"{'-'.join(kind)}.json", document)))
    except SpecError as error:
        assert error.reason.startswith("Tokenizer"), (kind, error)
        yield f"tokenizer: {error.reason}"
        return
    encoder = Encoder(
        engine=tokenizer.reference,
        reference=tokenizer.reference,
        vocab_size=tokenizer.vocab_size,
        delimiters=Delimiters(None, None),
        dtype=np.dtype("<u2"),
        sample_one_in=1024,
        restore=tokenizer.restore,
        byte_lengths=tokenizer.byte_lengths,
        drop=tokenizer.drop,
        normalize=tokenizer.normalize,
    )
    places = np.arange(9)
    place = places[~is_sampled(places, np.zeros(9, np.int64), 1024)][:1]  # in no sample
    for text in draw_texts(random.Random(str(kind))):
        try:
            ids = encoder.encode([text], place, np.zeros(1, np.int64)).tokens.tolist()
        except LosesText as loss:
            assert loss.kept != text.encode(), kind
            yield "document: loses text"
        except KillsEngine:
            yield "document: cannot be encoded"
        else:
            wanted = text.lower() if "lowercase" in kind else text
            if "marks" in kind or "marks and punctuation" in kind:
                wanted = wanted.replace(" ", "▁")
            pattern = find_pattern(tokenizer, document, ids)
            there = squeeze(wanted.encode()) if tokenizer.removes else wanted.encode()  # said in the plan
            yield "decoded" if pattern.fullmatch(there) else f"lost: {kind} {text!r} {ids}"


def test_no_kind_of_tokenizer_loses_text_in_silence(outcomes: Counter[str]) -> None:
    assert [outcome for outcome in outcomes if outcome.startswith("lost")] == []
    assert len(KINDS) > 400
    assert outcomes["decoded"] > 2000


@pytest.mark.parametrize("outcome", ["document: loses text", "document: cannot be encoded"])
def test_some_documents_are_refused(outcome: str, outcomes: Counter[str]) -> None:
    assert outcomes[outcome] > 100
