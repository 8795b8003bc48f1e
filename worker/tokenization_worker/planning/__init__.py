"""The plan of a run: what the source holds, how it is cut, what it will cost, and what is refused before any work.

Imports `output`, `readers`, `tokenizers`, `storage` and below; writes nothing. Open `prepare` first.
"""
