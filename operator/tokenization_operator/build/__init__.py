"""The children of a job as Kubernetes objects: checkpoint, plan Job, RayJob, their Pods and where they run.

Imports `objects` and `settings`. Pure. Open `children` first.
"""
