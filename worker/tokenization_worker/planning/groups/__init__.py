"""Named groups of source files: which files are in which group, and which of their documents are taken.

`files` lists them, `shares` decides about documents and finds the shares of groups that ask for tokens. Open `shares`
first. Imports `storage`, `api`, `events` and below.
"""
