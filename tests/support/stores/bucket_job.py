"""A small job whose source and output are in the bucket of the fake Cloud Storage."""

from __future__ import annotations

from tokenization_worker.api.job import TokenizationJob

JOB = TokenizationJob.from_object(
    {
        "apiVersion": "tokenization.dev/v1alpha1",
        "kind": "TokenizationJob",
        "metadata": {"name": "test"},
        "spec": {
            "source": {"uris": ["gs://bucket/corpus/"]},
            "tokenizer": {"name": "bytes"},
            "output": {"uri": "gs://bucket/out", "shards": {"tokens": 5000}},
            "rangeBytes": "4Ki",
        },
    }
)
