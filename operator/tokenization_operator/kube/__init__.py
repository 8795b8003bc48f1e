"""The API server: requests, error mapping, events, the Lease, and the fence that stops writes without it.

Imports `decide` (whose actions it carries out), `observe` and `objects`. Open `client` first.
"""
