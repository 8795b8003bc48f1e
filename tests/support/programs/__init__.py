"""Programs that tests start, and folders for their PYTHONPATH."""
