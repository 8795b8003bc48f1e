"""The tables of tiktoken encodings, their rank files, and how to get the files. Open `encodings` first."""
