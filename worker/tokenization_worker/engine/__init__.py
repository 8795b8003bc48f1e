"""Runs the tasks of any pipeline: hands them out, takes receipts, counts losses, stops, reports.

Imports `events`, `output` and below, and no pipeline: it knows no kind of task by name. Open `dispatch` first, then
`executor`. `local` has processes of this machine; `ray` a cluster.
"""
