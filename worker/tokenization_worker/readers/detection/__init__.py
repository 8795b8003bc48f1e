"""What a file is: compression, format, encoding, size, and its first documents for the plan.

Imports `readers`. Open `detect` first.
"""
