"""Builds the status beyond its phase: conditions, times, printer columns. Pure. Open `conditions` first."""
