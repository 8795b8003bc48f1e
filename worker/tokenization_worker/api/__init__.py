"""The job's meaning: models of the manifest, the status and the checkpoint, and the keys of a job.

Imports `host`, `errors` and `messages`; the operator imports this room and nothing else of the worker's data path.
Open `job` first: it holds `TokenizationJob`. `types` has the base of all models, `manifest` reads files, `schema`
writes the CRDs and the field reference.
"""
