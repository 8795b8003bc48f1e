"""The formats' own readers prove our files: each runs in a virtual environment of its own and imports nothing of ours.

`make test-peers` makes the environments from the package index, outside of the checkout. A peer is one line in `table`
and one script in `readers/`; `make test` does not collect them.
"""
