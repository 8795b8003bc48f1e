"""The executor on a Ray cluster. The only room that imports Ray.

Open `executor` first. `workers` starts the actors, `worker` is one of them, and `connection` reaches the cluster.
"""
