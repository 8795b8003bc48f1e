"""The records of a run: receipts, epochs, verdicts, lists of unusable documents. They alone say what is done.

Imports `output`. Open `ledger` first.
"""
