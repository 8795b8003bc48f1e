"""The records of decompressed content: where each begins and ends, and the documents of JSON lines and of text.

Imports `document_batch` of `readers`. Open `record_splitter` first; `jsonl` and `text` read what it gives.
"""
