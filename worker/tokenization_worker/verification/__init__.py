"""Proof of a dataset from its bytes and its source; the way in is `verify.verify`."""
