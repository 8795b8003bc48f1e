"""What lies at `output.uri`: names, records, tables, the plan, the index, and who may write over what.

Imports `formats`, `readers`, `tokenizers`, `storage` and below. Open `layout` first, then `create_only`: it alone
decides what a second writer may do. `ledger` has the receipts.
"""
