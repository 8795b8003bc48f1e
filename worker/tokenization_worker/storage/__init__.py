"""Source and output on disks and object stores: `Store` (read and written) and `Source` (read only).

Imports `host`, `api`, `stop`, `errors` and `messages`. Open `base` first: it holds the protocol and its two rules.
`open` chooses the store of a URI, `sources` lists what a job reads, and `retry` repeats calls of object stores.
Each scheme has a room of its own, and only there is its client library imported: `local`, `gcs`, `s3`, `hf`.
"""
