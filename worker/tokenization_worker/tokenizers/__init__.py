"""Tokenizers: loading, the engines that encode, and the proof that they agree."""
