"""Manifests that are small and would take all memory, or that have no end: refused at once, and by name."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest
import yaml

from support.command_line import Bench, assert_told
from support.manifests.api_manifests import with_spec
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.manifest import yaml_text
from tokenization_worker.errors import SpecError


def laughs(levels: int, width: int) -> str:
    """Lists of lists of ... of lists, each of aliases of the one before."""
    lines = [f"a0: &a0 [{', '.join(['lol'] * width)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


BOMBS = {
    "aliases": laughs(9, 9),
    "few-large-texts": f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]\n",
    "merges": "a: &a0 {x: 1, y: 2}\n" + "".join(f"b{n}: &a{n + 1} {{c: *a{n}, d: *a{n}}}\n" for n in range(40)),
    "itself": "a: &a [*a]\n",
    "large": "a: " + "x" * (2 << 20),
    "very-many": "a: [" + "b," * 500_000 + "]\n",
    "deep": "a: " + "[" * 200_000,
    "deep-and-closed": "a: " + "[" * 5_000 + "]" * 5_000,
    "deep-blocks": "".join(" " * n + "a:\n" for n in range(1000)),
}
WORDS = {"itself": r"\*a holds itself", "deep": "100 blocks", "deep-and-closed": "100 blocks", "deep-blocks": "100 bl"}


@pytest.mark.parametrize("parser", ["c", "python"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_before_values_are_made_of_it(
    bomb: str, parser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    if parser == "python":
        monkeypatch.setattr(yaml_text, "_Base", yaml.SafeLoader)
    monkeypatch.setattr(yaml_text.yaml, "load_all", lambda *what: made.append(what) or [])
    with pytest.raises(SpecError, match=WORDS.get(bomb, "(?s)more than 1 MiB.*aliases.*a few KB")) as raised:
        TokenizationJob.from_yaml(BOMBS[bomb])
    assert raised.value.reason == "SpecInvalid"
    assert not made


@pytest.mark.parametrize("command", ["run", "plan", "validate"])
@pytest.mark.parametrize("manifest", ["bomb.yaml", "/dev/zero"])
def test_commands_refuse_what_is_no_manifest_in_bounded_memory(command: str, manifest: str, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (tmp_path / "bomb.yaml").write_text(BOMBS["aliases"])
    told = bench.tokjob(command, manifest, preexec=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)))
    assert_told(told, 2, "SpecInvalid", manifest)


def test_aliases_of_a_usual_manifest_are_read() -> None:
    text = yaml.safe_dump(with_spec({}))
    shared = text.replace(
        "spec:", "spec:\n  head: {nodeSelector: &nodes {disk: ssd}}\n  workers: {nodeSelector: *nodes}", 1
    )
    spec = TokenizationJob.from_yaml(shared).to_manifest()["spec"]
    assert spec["workers"]["nodeSelector"] == spec["head"]["nodeSelector"] == {"disk": "ssd"}


@pytest.mark.parametrize("text", ["a: \ud800\n", "a: \x07\n"], ids=["surrogate", "bell"])
def test_text_that_yaml_cannot_hold_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="not YAML"):
        yaml_text.parse_yaml(text, origin="the manifest")


def test_the_parser_in_c_is_used_where_it_is() -> None:
    assert yaml.__with_libyaml__ == issubclass(yaml_text._Loader, getattr(yaml, "CSafeLoader", type(sys)))


@pytest.mark.parametrize("digits", ["9" * 5_000, "0x" + "f" * 5_000, "0b" + "1" * 20_000, "1" + ":1" * 300 + ".0"])
def test_a_number_of_thousands_of_digits_is_refused_with_its_place(digits: str) -> None:
    with pytest.raises(SpecError, match=rf"line 1, column 20: a number of {len(digits):,} characters") as caught:
        TokenizationJob.from_yaml(f"spec: {{rangeBytes: {digits}}}\n")
    assert caught.value.reason == "SpecInvalid"


@pytest.mark.parametrize("path", ["rangeBytes", "maxQuarantined", "output.shards.tokens", "output.path"])
@pytest.mark.parametrize("number", [10**5000, -(10**5000)], ids=["above", "below"])
def test_a_number_of_a_program_that_cannot_be_written_is_refused(path: str, number: int) -> None:
    with pytest.raises(SpecError, match="thousands of digits") as caught:
        TokenizationJob.of(source="a", tokenizer="bytes", output="o", **{path: number})
    assert caught.value.reason == "SpecInvalid"


def test_an_exponent_of_a_thousand_million_is_not_written_out() -> None:
    with pytest.raises(SpecError, match=r'spec\.maxQuarantined: found "1e999999999"'):
        TokenizationJob.of(source="a", tokenizer="bytes", output="o", maxQuarantined="1e999999999")
