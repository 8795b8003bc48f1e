"""The proof of a dataset from its bytes, by code that shares nothing with what wrote it.

Imports `storage`, `tokenizers`, `api` and names of `output`, and no writer. Open `verify` first. `decoders` reads the
source a second time, with a decoder of its own for each format.
"""
