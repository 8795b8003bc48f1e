"""The records of a run: receipts, epochs, verdicts, lists of unusable documents. They alone say what is done.

Imports `output`, and values of `readers` and `tokenizers`. Open `ledger` first.
"""
