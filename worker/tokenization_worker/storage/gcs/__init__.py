"""Google Cloud Storage: the store, the source, and the client with what its errors mean.

Imports `storage`, `errors`, `messages`. Open `store` first. Importing `client` costs 0.2 s.
"""
