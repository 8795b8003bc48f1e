"""The limits and resources of this machine and process: folders, open files, temporary files, threads, kept files.

Imports `errors` and `messages`. Open the module that is named like what you look for; they do not know each other.
"""
