"""Rows of one length, and the order of a shuffle: which piece of which document stands where. Pure."""
