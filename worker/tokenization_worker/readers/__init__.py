"""From stored bytes to batches of documents, and to the list of those that cannot be used.

Imports `storage`, `api`, `host`, `errors`, `messages`. Open `open` first: it puts the parts together. `document_batch`
holds what crosses the border of this room. `detection` says what a file is, and `head` reads its
first documents for the plan; `parquet` alone knows pyarrow.
"""
