"""From stored bytes to batches of documents, and to the list of those that cannot be used.

Imports `storage`, `api`, `errors`, `messages`. Open `open` first: it puts the parts together. `document_batch` holds
what crosses the border of this room. `detection` says what a file is, `lines` splits content into records and parses
them, `parquet` alone knows pyarrow, and `head` reads the first documents of a file for the plan.
"""
