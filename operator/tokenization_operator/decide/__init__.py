"""Decides what to do about a job from its observation. Pure: no I/O, no clock.

Imports `observe`, `build`, `settings` and `objects`. Open `next_step` first. `status` builds what users see.
"""
