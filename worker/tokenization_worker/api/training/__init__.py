"""The training of a tokenizer: its manifest, and the frozen values that the worker uses.

Imports the rooms and modules of `api` that describe a job's source. Open first: `manifest`, then `resolve`.
"""
