"""The proof of a dataset from its bytes, by code that shares nothing with what wrote it.

Imports `storage`, `tokenizers`, `api`, and of `output` and `readers` only names, values and the index: no writer, and
no reader of sources. Open `verify` first. `decoders` reads the source a second time, and `formats` the shards;
`shards` checks one shard, and `files` one source file.
"""
