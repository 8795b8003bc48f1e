"""Trains tokenizers: cuts text into pieces, counts them, merges pairs of tokens, and writes the vocabulary.

Imports `tokenizers`, `host` and `errors`; needs numba and tokenizers (the extra `train`). Open first: `counting`, then
`merging`. What reads documents, and what is stored where, is left to `pipelines.train`.
"""
