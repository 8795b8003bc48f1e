"""Engines in a process of their own, so that a document that crashes one is found. Open `supervisor` first."""
