"""The training pipeline: ranges of the source are counted, and their counts merged.

Imports `engine`, `planning`, `output`, `training` and below. Open first: `pipeline`, then `count_task`. What comes of
the merged counts is `run.training`'s business.
"""
