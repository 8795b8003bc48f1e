"""Reads one source file again and compares it with the shards: all of its documents, or a sample.

`check` decides which and holds the whole comparison, `sample` the other one, `by_sums` those of a shuffled dataset;
`batches`, `counts` and `encode` serve them. Open `check` first.
"""
