"""Kubernetes objects as plain values: kinds, names, labels, quantities, merge patches, and what is read from any.

Imports `tokenization_worker.api` alone. Open `kinds` and `names` first.
"""
