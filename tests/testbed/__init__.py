"""A real Kubernetes control plane with a real KubeRay operator for tests, without root and without containers.

`programs` builds the programs from the Go module proxy, `certificates` makes the keys, `processes` starts and stops,
`cluster` puts them together, `nodes` are nodes without a machine. `python -m testbed up` starts one for a person.
"""
