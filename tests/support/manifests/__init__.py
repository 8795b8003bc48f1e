"""Manifests that are right and wrong, as tables."""
