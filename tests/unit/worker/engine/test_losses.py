"""When a task has lost its worker too often, and what its user is told to do."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tokenization_worker.engine.losses import Losses
from tokenization_worker.engine.task import Task, WorkerLost
from tokenization_worker.errors import WorkerDied

RAYS_WORDS = (
    "The actor died unexpectedly before finishing this task. Some common causes include: (1) the process was killed by "
    "the OOM killer due to high memory usage, (2) ray stop --force was called, or (3) the worker crashed unexpectedly "
    "due to SIGSEGV or another unexpected error."
)
"""Of every worker that is gone, however it ended."""


class Range:
    product = "range 7 (file:///data/a.parquet and more)"


@pytest.mark.parametrize(
    ("ended", "advice"),
    [
        ("killed by SIGKILL", "check the memory"),
        ("exit code 1", "check the memory"),
        (RAYS_WORDS, "check the memory"),
        *((f"killed by {name}", "each of its files alone") for name in ("SIGABRT", "SIGSEGV", "SIGBUS")),
    ],
)
def test_the_third_loss_is_too_much_and_says_what_to_do(ended: str, advice: str) -> None:
    losses, task = Losses(), cast(Task, cast(Any, Range()))
    loss = WorkerLost(f"process 42: {ended}", with_node=False)
    assert [losses.count(task, loss) for _ in range(2)] == [1, 2]
    with pytest.raises(WorkerDied) as raised:
        losses.count(task, loss)
    assert f"{Range.product} lost its worker 3 times: process 42: {ended}" in raised.value.message
    assert advice in raised.value.next_step
