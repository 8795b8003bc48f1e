"""Looking without running: what a run would do, how far one is, what documents a dataset holds, what to remove.

Imports `run` and below. Open `preview` first.
"""
