"""From a file to a job: YAML, mistakes of people who wrote it by hand, and words that were meant.

Imports `api.types`. Open `load` first: it reads YAML by `yaml_text`, and words mistakes by `describe`.
"""
