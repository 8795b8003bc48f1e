"""A plan with its estimated tokens, time and size."""

from __future__ import annotations

from dataclasses import dataclass

from tokenization_worker.output.plan_file import Plan
from tokenization_worker.planning.prepare import Prepared


@dataclass(frozen=True, kw_only=True)
class EstimatedPlan(Plan):
    """What a run would do, with tokens and time scaled from a sample of the source.

    `tokens`, `shards`, `shard_bytes` and `seconds` are None where the sample cannot tell. `seconds`: of a whole run in
    `processes` processes on this machine with `engine`.
    """

    tokens: int | None
    shards: int | None
    shard_bytes: int | None
    seconds: float | None
    tokenizer: str
    engine: str
    processes: int


def with_estimate(
    plan: Plan, prepared: Prepared, *, engine: str, processes: int, start_seconds: float
) -> EstimatedPlan:
    """`plan` with the estimate of its source; `start_seconds`: what every run takes."""
    found = prepared.estimate
    tokens: int | None = found.tokens
    shards, shard_bytes, seconds = None, None, None
    if tokens is not None:
        shards = found.shards(prepared.data.output)
        shard_bytes = found.shard_bytes
        core_seconds: float | None = found.core_seconds(engine)
        seconds = None if core_seconds is None else start_seconds + core_seconds / processes
    return EstimatedPlan(
        **vars(plan),
        tokens=tokens,
        shards=shards,
        shard_bytes=shard_bytes,
        seconds=seconds,
        tokenizer=prepared.tokenizer.name,
        engine=engine,
        processes=processes,
    )
