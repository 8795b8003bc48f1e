"""Trains tokenizers: cuts text into pieces, counts them, merges pairs of tokens, and writes the vocabulary.

Imports `tokenizers`, `processes`, `host` and `errors`; needs numba and tokenizers (the extra `train`), but for
`fertility` and `scripts`, which measure tokenizers of any kind. Open first: `counting`, then `merging`;
`sentencepiece_models` trains models of that package from the same counts. What reads documents, and what is stored
where, is left to `pipelines.train`.
"""
