"""The Kubernetes side of a TokenizationJob.

Imports `tokenization_worker.api` (the job's meaning) and nothing else of the worker.
"""
