"""The API server: requests, what its errors mean, events, the Lease, and the fence that stops writes without it.

Imports `decide` (it carries out decisions), `observe` and `objects`. Open `client` first.
"""
