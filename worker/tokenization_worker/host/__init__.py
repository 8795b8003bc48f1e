"""What this machine and this process allow: folders, open files, temporary files, calls at once, kept files.

Imports `errors` and `messages`. Open the module that is named like what you look for; they do not know each other.
"""
