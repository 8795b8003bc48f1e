"""Tokenize a corpus: ranges become segments, segments become shards, and a commit ends it.

Imports `engine`, `planning`, `output` and below. Open `schedule` first: it decides what is next.
`ranges` and `shard_builder` hold the two kinds of task; `pipeline` is the driver's side; `commit` writes the index.
"""
