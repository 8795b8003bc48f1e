"""Builds the status beyond its phase: conditions, times, printer columns, cost. Pure. Open `conditions` first."""
