"""Detects the compression, format, encoding and size of a file.

Imports `decompress` and `document_batch` of `readers`. Open `detect` first.
"""
