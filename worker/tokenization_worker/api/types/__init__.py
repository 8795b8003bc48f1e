"""What models are built from: the base model, fields with their rules, quantities, times, names of Kubernetes.

Imports nothing above it. Open `model` first.
"""
