"""The bytes of what is written: shards (`npy`), their documents (`sidecar`), and segments, which are scratch.

Imports `storage`, `api`, `host`, `errors`. A format knows its own bytes and nothing of runs. Open `npy` first.
"""
