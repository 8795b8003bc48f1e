"""Tokenize a corpus: ranges become segments, segments become shards, and a commit ends it.

Imports `engine`, `planning`, `output` and below. Open `tasks` first: the two kinds of task. `schedule` decides what is
next; `range_tokenizer` and `shard_builder` do the work; `commit` writes the index.
"""
