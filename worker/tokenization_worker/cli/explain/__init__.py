"""Explains the state of a job on Kubernetes on one screen: the output of `tokjob explain`.

`cluster` reads (get and list, nothing else); `events`, `pods`, `logs` and `advice` judge what was read, `report` puts
it together, `screen` draws it. All but `cluster` is pure. Open `report` first.

Nothing here imports the operator: a person's machine may have another version, or none. So objects are read as the API
server has them, and a field that is missing is shown as missing, never as an error.
"""
