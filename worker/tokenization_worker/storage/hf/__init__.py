"""Datasets on the Hugging Face Hub, read only. Imports `storage`, `errors`, `messages`. Open `source` first."""
