"""The Kubernetes side of a run: reads its TokenizationCheckpoint, and reports progress to it.

Imports `run` and below. Open `reporter` first; `client` is the only Kubernetes client of a run.
"""
