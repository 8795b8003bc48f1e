"""Help shows what a person at this machine needs; the rest is one flag away."""

from __future__ import annotations

import re

import pytest

from tokenization_worker.api.job import OPERATOR_FIELDS, JobSpec
from tokenization_worker.cli.main import main

CLUSTER = {JobSpec.model_fields[name].alias for name in OPERATOR_FIELDS}


def flags_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> set[str]:
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    assert not left.value.code
    return set(re.findall(r"--[\w.]+(?:-\w+)*", capsys.readouterr().out.replace("-\n", "-")))


@pytest.mark.parametrize("command", ["run", "plan"])
def test_help_leaves_out_what_only_a_cluster_needs(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    short, everything = flags_of(capsys, command, "--help"), flags_of(capsys, command, "--help-all")
    assert short < everything
    hidden = everything - short
    assert {flag.removeprefix("--").partition(".")[0] for flag in hidden} <= CLUSTER
    assert {
        "--workers.replicas",
        "--env",
        "--image",
        "--suspend",
        "--startupDeadlineSeconds",
    } <= hidden
    assert {"--source.textField", "--output.shards.tokens", "--maxQuarantined", "--rangeBytes", "--help-all"} <= short


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_hidden_flag_works_and_a_typo_of_it_is_recognised(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    job = ["--source", "a", "--tokenizer", "bytes", "--output", "o", "--print-manifest"]
    assert main([command, *job, "--workers.replicas", "2"]) == 0
    assert "replicas: 2" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([command, *job, "--workers.replica", "2"])
    told = capsys.readouterr().err
    assert "did you mean --workers.replicas?" in told
    assert f"tokjob {command} --help-all shows every flag" in told
