"""Runs engines in processes of their own, to find documents that crash them. Open `supervisor` first."""
