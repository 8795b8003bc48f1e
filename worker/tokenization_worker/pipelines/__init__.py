"""What this program can do to a corpus, each as task kinds and a schedule. The engine runs any of them.

Open `tokenize` first: it is the only one today.
"""
