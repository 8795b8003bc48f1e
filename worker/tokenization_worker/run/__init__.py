"""A run from manifest to index: decide what is at the output, plan, execute, commit.

Imports everything below. Open `run` first: its `run_job` is the table of contents.
"""
