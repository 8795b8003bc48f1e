"""Trains SentencePiece models from counted pieces, by the package sentencepiece.

Imports `tokenizers`, `processes` and `errors`, and of `training` the pieces; needs sentencepiece (the extra of that
name). Open `model_trainer` first; `training_process` runs it so that it can be stopped.
"""
