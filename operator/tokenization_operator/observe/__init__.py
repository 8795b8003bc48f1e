"""One job at one moment, as values: the observation, the state of its RayJob, the diagnosis of its Pods. Pure.

Imports `objects`. Open `observation` first. `informer.observer` fills an observation; `decide` reads it.
"""
