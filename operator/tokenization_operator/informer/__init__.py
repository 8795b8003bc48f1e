"""What the watches delivered, pruned; which jobs to reconcile next; and the observation of one job.

Kopf's daemons and timers would write annotations and finalizers to users' objects, so this project has its own cache
and queue. Imports `kube`, `decide`, `observe`, `objects`. Open `cache` first, then `work_queue`.
"""
