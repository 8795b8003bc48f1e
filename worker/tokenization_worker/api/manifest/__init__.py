"""From a file to a job: YAML, the errors of people who wrote it by hand, words that were meant.

Imports `api.types`. Open `load` first.
"""
