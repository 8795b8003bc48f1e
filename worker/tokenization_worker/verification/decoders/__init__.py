"""Reads source files for `verify`: records of any format, with no code of `readers`. Open `source` first."""
