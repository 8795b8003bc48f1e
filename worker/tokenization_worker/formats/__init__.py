"""The bytes of what is written: shards in each format (`npy` and others), their documents (`sidecar`), and scratch
(`segment`).

Imports `storage`, `api`, `errors`. A format knows its own bytes and nothing of runs. Open `base` first.
"""
