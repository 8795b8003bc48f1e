"""Reports that a check begins which takes seconds, once for each host."""

from __future__ import annotations

from collections.abc import Callable

from tokenization_worker.events import CheckingEngine, RecordingReference, Watcher
from tokenization_worker.tokenizers.base import Engine, Tokenizer
from tokenization_worker.tokenizers.checks.behaviour import BEHAVIOUR_SECONDS
from tokenization_worker.tokenizers.checks.engine_check import ENGINE_CHECK_SECONDS, Begins


def reporting_check(watch: Watcher) -> Begins:
    """What `engine_check` calls before it compares an engine with the reference."""

    def begins(accelerated: Engine, reference: Engine) -> None:
        watch(CheckingEngine(accelerated.name, reference.name, ENGINE_CHECK_SECONDS.get(reference.name, 1.0)))

    return begins


def reporting_record(tokenizer: Tokenizer, watch: Watcher) -> Callable[[], None]:
    """What `behaviour_of` calls before it finds out what the reference does."""
    name = tokenizer.reference.name
    return lambda: watch(RecordingReference(name, BEHAVIOUR_SECONDS.get(name, 1.0)))
