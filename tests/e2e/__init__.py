"""The product as a cluster runs it: images of our own in Pods on a real node of this machine.

`python -m e2e` makes the node in namespaces of its own, runs the tests there, and leaves nothing behind. Needs root.
"""
