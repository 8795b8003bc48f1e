"""Scripts and words of texts against slow programs; tokens of cells whatever the batches, and ids of text alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from unicodedata import category, name

import numpy as np
import pytest
import regex  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from support.tokenizer_models import make_tokenizer
from tokenization_worker.errors import DataError, SpecError, TokenizationError
from tokenization_worker.tokenizers.base import Encoded, HasNoToken, KillsEngine
from tokenization_worker.tokenizers.byte_engine import ByteEngine
from tokenization_worker.training import fertility, scripts
from tokenization_worker.training.fertility import Cell, measure_holdout, measure_tokenizer
from tokenization_worker.training.scripts import OTHER, SCRIPTS, WITHOUT_SPACES, count_words, script_of

# ---- scripts and words


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("", OTHER),
        ("12 :-) \U0001f600 ー\u0301", OTHER),
        ("Straße 2", "Latin"),
        ("Ⅶ Ⅷ Ⅸ я", "Cyrillic"),
        ("ひらがなとカタカナ漢字", "Kana"),
        ("漢字漢字かな", "Han"),
        ("ไทย", "Thai"),
        ("the ไทย", "Latin"),
        ("ไท the", "Latin"),
        ("ab αβ", "Greek"),
        ("αβ ab", "Greek"),
        ("\U000104b0", "Osage"),
        ("\U00010330", OTHER),
    ],
    ids=ascii,
)
def test_a_text_has_the_script_of_most_of_its_letters_and_of_ties_the_first_by_name(text: str, script: str) -> None:
    assert script_of(text) == script


def test_every_letter_up_to_u_ffff_has_the_script_that_unicode_says() -> None:
    """By the first word of its name, for scripts whose letters are named so."""
    words = {"LATIN": "Latin", "CYRILLIC": "Cyrillic", "THAI": "Thai", "HIRAGANA": "Kana", "DEVANAGARI": "Devanagari"}
    seen = set()
    for point in range(0xFFFF):
        if category(chr(point)) in ("Lu", "Ll", "Lo"):
            script = words.get(name(chr(point)).split()[0])
            if script:
                seen.add(script)
                assert script_of(chr(point)) == script, hex(point)
    assert seen == set(words.values())


def test_no_letter_lies_where_the_table_does_not_look() -> None:
    above = "".join(map(chr, range(0x40000, 0x110000)))
    assert not regex.search(r"\p{L}", above)


def test_scripts_without_spaces_are_scripts() -> None:
    assert not WITHOUT_SPACES - set(SCRIPTS)
    assert list(SCRIPTS[1:]) == sorted(set(SCRIPTS[1:]))


@given(st.text(st.sampled_from("ab \n\x1c\x85\u3000\u200bж"), max_size=40))
def test_words_and_scripts_do_not_depend_on_the_parts_that_are_looked_at(text: str) -> None:
    script = script_of(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scripts, "_PART", 3)
        assert count_words(text) == len(text.split())
        assert script_of(text) == script


# ---- tokens


class Pairs:
    """An engine of ASCII whose tokens are bytes, and 300 for "ab". `fails`: on a text that holds "!"."""

    name = "pairs"

    def __init__(self, fails: Callable[[int], Exception] | None = None) -> None:
        self._fails = fails

    def encode(self, texts: Sequence[str]) -> Encoded:
        for number, text in enumerate(texts):
            if self._fails is not None and "!" in text:
                raise self._fails(number)
        found = [[300 if part == "ab" else ord(part) for part in regex.findall("ab|.", text)] for text in texts]
        ends = np.cumsum([len(each) for each in found], dtype=np.int64)
        return Encoded(np.array([token for each in found for token in each], np.uint32), ends)


DOCUMENTS = [("ab ab", "web"), ("12", "web"), ("", "code"), ("ab" * 40, "code"), ("ab", "web"), ("c d", "code")]
CELLS = (
    Cell("code", "Latin", 2, 83, 3),
    Cell("code", OTHER, 1, 0, None),
    Cell("web", "Latin", 2, 7, 3),
    Cell("web", OTHER, 1, 2, None),
)


@pytest.mark.parametrize("batch_bytes", [1, 4, 1000])
def test_tokens_and_ids_are_counted_in_any_batches(batch_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fertility, "_BATCH_BYTES", batch_bytes)
    monkeypatch.setattr(fertility, "_ALONE_BYTES", 50)
    tokenizer = make_tokenizer(None, reference=Pairs())
    tokenizer.vocab_size = 302
    tokenizer.special_tokens = {"<|endoftext|>": 256, "<unk>": 301}
    tokenizer.unknown_id = 301
    holdout = measure_holdout(DOCUMENTS)
    assert holdout.cells == CELLS
    told: list[int] = []
    found = measure_tokenizer(tokenizer, holdout, name="pairs", threads=2, watch=told.append)
    assert (found.name, found.vocabulary_size, found.tokens) == ("pairs", 302, (43, 0, 4, 2))
    assert (found.never_used, found.under_100) == (301 - 6, 301)
    assert told == sorted(told)
    assert told[-1] == 92
    tokenizer.unknown_id = None
    assert measure_tokenizer(tokenizer, holdout, name="pairs").never_used == 300 - 6


def test_an_id_that_is_used_100_times_is_not_seldom() -> None:
    tokenizer = make_tokenizer(None, reference=ByteEngine())
    found = measure_tokenizer(tokenizer, measure_holdout([("a" * 100 + "b" * 99, "")]), name="bytes")
    assert (found.never_used, found.under_100) == (254, 255)


@pytest.mark.parametrize(
    ("kill", "error", "reason"),
    [(KillsEngine, DataError, "PatternFails"), (HasNoToken, SpecError, "TokenizerLosesText")],
)
def test_a_document_on_which_the_engine_fails_is_named(
    kill: type[KillsEngine], error: type[TokenizationError], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fertility, "_BATCH_BYTES", 10)
    tokenizer = make_tokenizer(None, reference=Pairs(lambda number: kill(number, "it backtracks")))
    tokenizer.vocab_size = 301
    holdout = measure_holdout([*DOCUMENTS, ("x! " * 40, "web"), ("!", "web")])
    with pytest.raises(
        error, match=r"en32k cannot encode document 7 of the holdout, which begins 'x! .*'\.\.\.: it back"
    ) as caught:
        measure_tokenizer(tokenizer, holdout, name="en32k", threads=2)
    assert (caught.value.reason, "holdout: 0%" in caught.value.next_step) == (reason, True)


def test_what_watches_may_end_the_measuring() -> None:
    def stop(done_bytes: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_tokenizer(make_tokenizer(None), measure_holdout(DOCUMENTS), name="bytes", threads=2, watch=stop)
