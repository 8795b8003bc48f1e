"""Reads source files for `verify`: records of any format, with no code that `readers` reads by. Open `source` first."""
