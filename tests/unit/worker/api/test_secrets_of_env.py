"""Values of environment variables are never shown: a mistake in them names fields and kinds of values only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.manifests.api_manifests import with_spec
from tokenization_worker import TokenizationJob
from tokenization_worker.cli.main import main
from tokenization_worker.errors import SpecError

SECRET = "hf_SECRET0123456789"
JOB = ["plan", "--source", "data", "--tokenizer", "bytes", "--output", "out"]
MISTAKES: dict[str, tuple[Any, str]] = {
    "a mapping": ({"HF_TOKEN": SECRET}, "spec.env: found a mapping of names to values (values are not shown); write a"),
    "text": (SECRET, "spec.env: found text (values are not shown); write a list: `env: [{name: HF_TOKEN, valueFrom: "),
    "a list of texts": (
        [f"HF_TOKEN={SECRET}"],
        "spec.env[0]: found text (values are not shown); write a list: `env: [",
    ),
    "a value that is a list": ([{"name": "A", "value": [SECRET]}], "spec.env[0].value: found a list (values are not"),
    "a value that is too long": ([{"name": "A", "value": SECRET * 400}], "spec.env[0].value: found text (values are"),
    "a value that is a number": ([{"name": "A", "value": 1234509876}], "expected text: write it in quotes"),
    "a reference that is text": ([{"name": "A", "valueFrom": SECRET}], "spec.env[0].valueFrom: found text (values are"),
    "a name that is the value": ([{f"HF_TOKEN={SECRET}": 1}], "spec.env[0].HF_TOKEN: unknown field"),
}


@pytest.mark.parametrize(("env", "words"), MISTAKES.values(), ids=MISTAKES.keys())
def test_no_value_of_a_wrong_env_is_shown(env: Any, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SpecError) as caught:
        TokenizationJob.from_object(with_spec({"env": env}))
    assert words in caught.value.message
    assert main([*JOB, "--env", json.dumps(env)]) == 2
    assert main([*JOB, "--set", f"env={json.dumps(env)}"]) == 2
    told = str(caught.value) + capsys.readouterr().err
    assert "1234509876" not in told
    assert "hf_" not in told


@pytest.mark.parametrize(
    "typed",
    [
        ["--env", f"{{HF_TOKEN: {SECRET}"],
        ["--env", f"HF_TOKEN={SECRET}"],
        ["--set", f"env={{HF_TOKEN: {SECRET}"],
        ["--set", f"env.HF_TOKEN={SECRET}"],
        ["--set", f"env[0].value: {SECRET}"],
        ["--set", f"envFrom={SECRET}"],
        ["--env", f"- HF_TOKEN={SECRET}"],
        [f"--env.HF_TOKEN={SECRET}"],
    ],
    ids=lambda typed: typed[0] + typed[1].replace(SECRET, "") if len(typed) > 1 else "a flag below env",
)
def test_no_value_of_an_env_on_the_command_line_is_shown(typed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main([*JOB, *typed])
    except SystemExit as left:
        code = int(left.code or 0)
    told = capsys.readouterr().err
    assert code == 2, told
    assert "env" in told
    assert "hf_" not in told


@pytest.mark.parametrize("spec", [[f"env: {SECRET}"], f"env {SECRET}"], ids=["list", "text"])
def test_a_spec_that_is_no_mapping_is_not_shown(spec: object, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"spec: found (a list|text) \(values are not shown\)") as caught:
        TokenizationJob.from_object(with_spec({}) | {"spec": spec})
    assert "hf_" not in str(caught.value)
