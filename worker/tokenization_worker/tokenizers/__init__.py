"""From texts to token ids: loading a tokenizer, its engines, its special tokens, its fingerprint.

Imports `storage`, `api`, `host`, `errors`, `messages`. Open `base` first, then `load`. `ranks` has the tables of
tiktoken, `checks` decides whether the accelerated engine may be used, `isolation` encodes in a process that may crash.
"""
