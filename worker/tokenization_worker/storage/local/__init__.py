"""Files on disks of this machine: the store, the source, folders that no link leads out of, temporary files.

Imports `storage`, `host`, `errors`. Open `store` first.
"""
