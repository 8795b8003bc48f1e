"""What tests share: corpora, runs, an oracle, and the rooms below. Tests import it as `support`."""
