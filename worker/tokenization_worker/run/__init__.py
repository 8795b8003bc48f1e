"""A run from manifest to index: decide what is at the output, plan, execute, commit.

Imports everything below. Open `run` first: its `run_job` is the table of contents. `observe` reads what is at the
output, `output_state` decides what that is to a job, and `run_plan` makes the plan of a run a value.
"""
