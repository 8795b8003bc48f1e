"""What the watches have brought, kept small, and which jobs are to be looked at next.

It is ours, since Kopf's daemons and timers write annotations and finalizers on users' objects. Imports `kube`,
`decide`, `observe`, `objects`. Open `cache` first, then `work_queue`.
"""
