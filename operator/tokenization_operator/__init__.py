"""The operator: the Kubernetes side of a TokenizationJob.

Of the worker it imports only `tokenization_worker.api` (what a job means) and `messages` (how messages are worded).
"""
