"""What a file is: compression, format, encoding and size.

Imports `decompress` and `document_batch` of `readers`. Open `detect` first.
"""
