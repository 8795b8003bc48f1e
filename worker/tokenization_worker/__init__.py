"""Tokenize LLM pretraining corpora: exact shards, exact resume, and a proof.

    from tokenization_worker import TokenizationJob, open_dataset, run_job, verify

    job = TokenizationJob.from_yaml("job.yaml")
    run_job(job)                                  # the same call resumes
    tokens = open_dataset("out/")["train"].tokens(0, 2048)

Names are imported when they are used: the package itself costs nothing to import.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own takes longer to load than all else here
if TYPE_CHECKING:
    from tokenization_worker.api.job import TokenizationJob as TokenizationJob
    from tokenization_worker.dataset.dataset import open_dataset as open_dataset
    from tokenization_worker.inspect.preview import make_plan as make_plan
    from tokenization_worker.run.run import Options as Options
    from tokenization_worker.run.run import run_job as run_job
    from tokenization_worker.verification.verify import verify as verify

_HOMES = {
    "Options": "tokenization_worker.run.run",
    "TokenizationJob": "tokenization_worker.api.job",
    "make_plan": "tokenization_worker.inspect.preview",
    "open_dataset": "tokenization_worker.dataset.dataset",
    "run_job": "tokenization_worker.run.run",
    "verify": "tokenization_worker.verification.verify",
}

__all__ = ["Options", "TokenizationJob", "make_plan", "open_dataset", "run_job", "verify"]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
