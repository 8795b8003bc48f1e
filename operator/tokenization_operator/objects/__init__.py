"""Kubernetes objects as plain values: kinds, names, labels, quantities, merge patches, common fields.

Imports only `tokenization_worker.api`. Open `kinds` and `names` first.
"""
