"""Checks that an engine, or another library version, gives the reference's tokens. Open `engine_check` first."""
