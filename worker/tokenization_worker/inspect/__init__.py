"""Looking without running: what a run would do (`preview`), how far one is (`status`), what documents a dataset holds
(`show`, `unusable_documents`), how tokenizers do on held-out text (`training_report`), and what an unfinished run has
left (`clean`).

Imports `run` and below. Open `preview` first.
"""
