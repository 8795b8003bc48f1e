"""A training, from manifest to index: the same idea as a job's run, with fewer states.

Imports `pipelines.train`, `planning`, `output`, `training` and below. Open first: `train`, the table of contents.
"""
