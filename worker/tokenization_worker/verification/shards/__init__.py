"""The checks of one shard's bytes, and of what lies beside it: which documents it holds.

Open `check` first. `sidecar` reads which documents a shard holds; `same_tokens` compares its formats.
"""
