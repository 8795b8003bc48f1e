"""What is typed after a flag of a text field: it means one thing, or it is refused with both that it could mean."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.cli.main import main
from tokenization_worker.cli.manifest import JobParser, job_from_arguments, print_manifest
from tokenization_worker.errors import SpecError

JOB = ["--source", "a.txt", "--output", "out", "--source.format", "Text"]
SEPARATOR = "source.documentSeparator"


def parse(*arguments: str, tokenizer: str = "bytes") -> TokenizationJob:
    return job_from_arguments(JobParser("tokjob run", "").parse_args([*JOB, "--tokenizer", tokenizer, *arguments]))


def separator_of(form: str, typed: str) -> str | None:
    arguments = [f"--{SEPARATOR}", typed] if form == "flag" else ["--set", f"{SEPARATOR}={typed}"]
    return parse(*arguments).spec.source.document_separator


forms = pytest.mark.parametrize("form", ["flag", "set"])


@forms
@pytest.mark.parametrize(
    ("typed", "text"),
    [
        pytest.param('"\\n"', "\n", id="escape in double quotes"),
        pytest.param('"\\x1e"', "\x1e", id="number of a character"),
        pytest.param('"\\u2028"', "\u2028", id="number of a character of Unicode"),
        pytest.param('"\\\\n"', "\\n", id="escaped backslash"),
        pytest.param("'\\n'", "\\n", id="single quotes escape nothing"),
        pytest.param("'it''s'", "it's", id="doubled quote"),
        pytest.param('"a b"', "a b", id="words"),
        pytest.param("\n", "\n", id="a line feed itself"),
        pytest.param("<|endoftext|>", "<|endoftext|>", id="as it is"),
        pytest.param("a\\ b", "a\\ b", id="a backslash that escapes nothing"),
        pytest.param(" --- ", " --- ", id="spaces"),
        pytest.param("don't", "don't", id="an apostrophe"),
        pytest.param("12:30", "12:30", id="no number"),
        pytest.param("null", None, id="absent"),
        pytest.param('"null"', "null", id="the word"),
    ],
)
def test_a_text_is_what_was_typed_or_a_scalar_of_yaml_in_quotes(form: str, typed: str, text: str | None) -> None:
    assert separator_of(form, typed) == text


@forms
@pytest.mark.parametrize(
    ("typed", "ways"),
    [
        pytest.param("\\n", ["""'"\\n"'""", """'"\\\\n"'"""], id="line feed, or two characters"),
        pytest.param("a\\tb", ["""'"a\\tb"'""", """'"a\\\\tb"'"""], id="tab"),
        pytest.param("\\x1e", ["""'"\\x1e"'""", """'"\\\\x1e"'"""], id="number"),
        pytest.param("\\\\", ["""'"\\\\"'"""], id="one or two backslashes"),
        pytest.param('"', ["""'"\\""'"""], id="an open quote"),
        pytest.param("'tis", ['''"\\"'tis\\""'''], id="an open single quote"),
        pytest.param('"a" and "b"', ["""'"\\"a\\" and \\"b\\""'"""], id="two quoted words"),
        pytest.param('"\\q"', ["not YAML"], id="an escape that YAML does not know"),
    ],
)
def test_what_could_mean_two_things_is_refused_with_both(form: str, typed: str, ways: list[str]) -> None:
    with pytest.raises(SpecError) as raised:
        separator_of(form, typed)
    assert raised.value.reason == "SpecInvalid"
    assert SEPARATOR in raised.value.message
    for way in ways:
        assert way in str(raised.value), str(raised.value)


@pytest.mark.parametrize(
    ("typed", "text"),
    [("\\n", "\n"), ("a\\tb", "a\tb"), ("\\x1e", "\x1e"), ("\\\\", "\\"), ("\\r\\n", "\r\n")],
)
def test_both_ways_that_a_refusal_names_are_taken(typed: str, text: str) -> None:
    """The ways are for a shell: what it hands on is what the shell makes of them."""
    with pytest.raises(SpecError) as raised:
        separator_of("flag", typed)
    ways = [part for part in raised.value.next_step.split("; ") if SEPARATOR in part]
    found = [shlex.split(way.partition(": ")[2])[1] for way in ways]
    assert [separator_of("flag", each) for each in found] == [text, typed]


@pytest.mark.parametrize(
    "pattern",
    [
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r"\s*[\r\n]+|\s+",
        r"'(?i:[sdmt])|\p{N}{1,3}",
    ],
)
def test_a_regular_expression_is_taken_as_it_is(pattern: str) -> None:
    """There an escape means the same to every reader."""
    more = ["--tokenizer.pattern", pattern, "--tokenizer.specialTokens", "{a: 1}"]
    assert parse(*more, tokenizer="./ranks").spec.tokenizer.pattern == pattern


def test_a_regular_expression_in_quotes_is_refused() -> None:
    with pytest.raises(SpecError, match=r"tokenizer\.pattern"):
        parse("--tokenizer.pattern", "'a'", "--tokenizer.specialTokens", "{a: 1}", tokenizer="./ranks")


@pytest.mark.parametrize(
    ("typed", "documents"), [('"\\n"', 3), ("\n", 3), ("'\\n'", 1)], ids=["escape", "itself", "two characters"]
)
def test_documents_are_what_the_separator_says(
    typed: str, documents: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    assert main(["run", *JOB, "--tokenizer", "bytes", f"--{SEPARATOR}", typed, "--json"]) == 0
    finished = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert finished["documents_written"] == documents


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_a_printed_manifest_gives_the_same_text_again(text: str) -> None:
    typed = yaml.safe_dump(text, allow_unicode=True, default_style='"', width=10_000).strip()
    job = parse(f"--{SEPARATOR}", typed)
    assert job.spec.source.document_separator == text
    printed = print_manifest(job)
    assert print_manifest(TokenizationJob.from_yaml(printed)) == printed
    assert TokenizationJob.from_yaml(printed).spec.source.document_separator == text
