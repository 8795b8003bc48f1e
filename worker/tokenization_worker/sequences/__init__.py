"""Rows of one length: which piece of which document stands where. Pure."""
