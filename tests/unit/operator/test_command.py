"""What the operator's process logs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tokenization_operator.command import LEVELS, main, set_up_logs

KOPF = ("kopf.objects", "kopf._core", "aiohttp.access")
"""Loggers of each event and each probe."""


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    loggers = [root, *map(logging.getLogger, ("kopf", "aiohttp.access", "asyncio"))]
    before = [(each, each.level, each.handlers[:], each.propagate) for each in loggers]
    yield
    for each, level, handlers, propagates in before:
        each.setLevel(level)
        each.handlers[:] = handlers
        each.propagate = propagates


def least(name: str) -> str:
    return logging.getLevelName(logging.getLogger(name).getEffectiveLevel()).lower()


@pytest.mark.parametrize(
    ("level", "of_kopf"), [("debug", "debug"), ("info", "warning"), ("warning", "warning"), ("error", "error")]
)
def test_a_level_holds_for_the_operator_and_kopf_repeats_no_event_but_to_debug(level: str, of_kopf: str) -> None:
    set_up_logs(level)
    assert least("tokenization_operator") == level
    assert {least(name) for name in KOPF} == {of_kopf}


def test_all_levels_have_names_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--log-level", "loud"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert all(level in said for level in LEVELS)
