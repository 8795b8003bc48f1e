"""Checks that this process may encode for a run: libraries and engine give the run's tokens.

Every process asks before it encodes: a driver before it starts work, a worker before each range.
"""

from __future__ import annotations

import socket

from tokenization_worker.events import Warned, Watcher, ignore
from tokenization_worker.output.ledger.epochs import void_unchecked
from tokenization_worker.output.ledger.version_samples import describe_others, require_same_tokens
from tokenization_worker.pipelines.tokenize.context import RunContext
from tokenization_worker.planning.check_events import reporting_check
from tokenization_worker.storage.base import Store
from tokenization_worker.tokenizers.base import Tokenizer
from tokenization_worker.tokenizers.checks.engine_check import find_difference


def require_same_tokenizer(store: Store, context: RunContext, tokenizer: Tokenizer, watch: Watcher = ignore) -> None:
    """Refuse libraries that give other tokens than the run's, and an engine that differs on this machine.

    Raises `ChangedError("TokenizerChanged")`, or `Voided` after it has voided the engine. A second call costs a process
    nothing. `watch` is told of other versions that were compared.
    """
    others = require_same_tokens(store.uri, context.plan_id, tokenizer, context.versions)
    if others is not None:
        watch(Warned(describe_others(others)))
    if (verdict := find_difference(tokenizer, context.engine, reporting_check(watch))) is not None:
        raise void_unchecked(store, context.epoch, context.engine, verdict, socket.gethostname())
