"""What the operator sees of one job, as values: the observation, what KubeRay says, what is wrong with a Pod.

Imports `objects`. Open `observation` first.
"""
