"""What a terminal would obey is shown, not sent."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenization_worker.cli.escapes import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("\x1b[2J", r"\x1b[2J", id="clear the screen"),
        pytest.param("a\x1b]0;title\x07", r"a\x1b]0;title\x07", id="title of the window"),
        pytest.param("\x9b31m", r"\x9b31m", id="a C1 control sequence"),
        pytest.param("a\x7f\x00\r\n\t", r"a\x7f\x00\x0d\x0a\x09", id="C0 and DEL"),
        pytest.param("\u202egpj.exe", r"\u202egpj.exe", id="right-to-left override"),
        pytest.param("\u2066x\u2069", r"\u2066x\u2069", id="isolates"),
        pytest.param("one\u2028two", r"one\u2028two", id="line separator"),
        pytest.param("file-\udcff.txt", r"file-\udcff.txt", id="a byte of a name that is not UTF-8"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    "text",
    ["", "plain", "naïve 日本語 العربية עברית", "👩‍👩‍👧", "a\\x1bb", "é and e\u0301", "\u200f\u00a0"],
)
def test_printable_unicode_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_a_text_of_several_lines_keeps_them() -> None:
    assert printable("a\tb\nc\x1b\r", keep="\n\t") == "a\tb\nc\\x1b\\x0d"


@given(st.text(st.characters()))
def test_nothing_shown_is_a_control_and_all_of_it_can_be_encoded(text: str) -> None:
    shown = printable(text)
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cs"}
    shown.encode("utf-8")
    assert printable(shown) == shown
