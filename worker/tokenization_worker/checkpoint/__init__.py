"""The Kubernetes side of a run: its TokenizationCheckpoint is read, and told how far the run is.

Imports `run` and below. Open `reporter` first; `client` is the only Kubernetes client of a run.
"""
