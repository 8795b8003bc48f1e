"""How messages are worded: counts, commands as a shell takes them, extras to install, secrets left out.

Imports nothing of this package. Every message passes through `redact`; open that first.
"""
