"""A small job whose source and output are in the bucket of the fake Cloud Storage."""

from __future__ import annotations

from support.runs import make_job

JOB = make_job(
    "gs://bucket/corpus/",
    "gs://bucket/out",
    tokenizer={"name": "bytes"},
    output={"shards": {"tokens": 5000}},
    rangeBytes="4Ki",
)
