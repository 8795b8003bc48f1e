"""Builds the children of a job as Kubernetes objects: checkpoint, plan Job, RayJob, their Pods and placement. Pure.

Imports `objects` and `settings`. Open `children` first.
"""
