"""The tables of tiktoken encodings: which there are, their files, and how those get here. Open `encodings` first."""
