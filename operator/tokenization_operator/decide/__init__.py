"""What to do about a job, from what is seen of it. Pure: no I/O, no clock.

Imports `observe`, `build`, `settings` and `objects`. Open `next_step` first. `status` words what users see.
"""
