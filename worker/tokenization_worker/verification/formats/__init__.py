"""Readers of shards for `verify`: one a format, written a second time and sharing nothing with the writers.

Open `base` first: the protocol. `registry` has the decoders by the names of their formats.
"""
