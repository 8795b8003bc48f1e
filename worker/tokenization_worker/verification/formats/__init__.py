"""Readers of shards for `verify`: one a format, written a second time and sharing nothing with the writers."""
