"""Words the messages of `plan --checkpoint` and `drive` about an existing dataset."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from tokenization_worker.api.checkpoint import LAST_WORDS_VARIABLE, Committed, FailureReport, RunSpec
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.api.types.times import time_text
from tokenization_worker.events import Finished
from tokenization_worker.output import layout
from tokenization_worker.output.index import require_index
from tokenization_worker.storage.open import open_store

_MOST_LAST_WORDS = 1500


def committed_report(run: RunSpec, job: TokenizationJob, finished: Finished) -> Committed:
    """The proof that the index of this run is there."""
    store = open_store(resolve_data(job).output.uri)
    index = require_index(store)
    return Committed(
        job_uid=run.job_uid,
        run=run.number,
        run_key=run.run_key,
        data_key=index["dataKey"],
        index_uri=f"{store.uri}/{layout.INDEX}",
        index_digest=sha256(store.read(layout.INDEX)).hexdigest(),
        digest=index["digest"],
        fingerprint=index["tokenizer"]["fingerprint"],
        documents=finished.documents_written,
        tokens=finished.tokens,
        time=time_text(datetime.now(UTC)),
    )


def leave_words(failure: FailureReport) -> None:
    """Say why a Pod fails where the operator finds it even if nothing can be written to the checkpoint."""
    path = os.environ.get(LAST_WORDS_VARIABLE)
    if not path:
        return
    short = failure.model_copy(update={"message": failure.message[:_MOST_LAST_WORDS]})  # 4 KiB are kept
    Path(path).write_text(short.model_dump_json(by_alias=True, exclude_none=True), encoding="utf-8")
