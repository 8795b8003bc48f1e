"""One range of the source becomes one segment and one receipt.

Imports `engine`, `planning`, `output` and below. Open `range_task` first: the task. `range_tokenizer` reads slices,
`block_writer` encodes their documents.
"""
