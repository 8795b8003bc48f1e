"""Other people's tools: how to get them, and the same tokenizer in the form that they take.

Each lives in a virtual environment of its own below the work folder, made on request. A peer that cannot be installed
is named with the reason, and the comparison goes on without it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson

from tokenization_worker.tokenizers.fast_engine import make_tokenizer_json
from tokenization_worker.tokenizers.ranks.encodings import read_named

DATATROVE = ("datatrove==0.10.1", "tokenizers>=0.22", "orjson>=3.10", "zstandard>=0.23")

_HF_PATTERNS = {
    "cl100k_base": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}
"""What HF tokenizers reads otherwise than tiktoken (possessive `{1,3}+`), written so that both cut alike."""


class PeerUnavailable(Exception):
    """Why a peer is not here."""


def install_datatrove(folder: Path) -> Path:
    """The interpreter of an environment with datatrove, made where it is missing; raises `PeerUnavailable`."""
    python = folder / "bin" / "python"
    if _has_datatrove(python):
        return python
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *DATATROVE],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise PeerUnavailable(f"{' '.join(command[1:])}: {said[-1] if said else f'exit code {done.returncode}'}")
    if not _has_datatrove(python):
        raise PeerUnavailable(f"{DATATROVE[0]} is installed but cannot be imported")
    return python


def _has_datatrove(python: Path) -> bool:
    check = "import datatrove.pipeline.tokens, datatrove.pipeline.readers, tokenizers, orjson, zstandard"
    return python.exists() and subprocess.run([python, "-c", check], capture_output=True, check=False).returncode == 0


def read_versions(python: Path) -> str:
    """`datatrove 0.10.1 with tokenizers 0.23.3`."""
    show = "from importlib.metadata import version as v; print(v('datatrove'), 'with tokenizers', v('tokenizers'))"
    done = subprocess.run([python, "-c", show], capture_output=True, text=True, check=True)
    return f"datatrove {done.stdout.strip()}"


def write_hf_tokenizer(encoding: str, path: Path) -> str:
    """A tokenizer.json with the tokens of a tiktoken encoding; returns the text of its end-of-text token.

    The token is part of the vocabulary, so that it can be asked for by name, and not an added token, so that
    text which spells it stays text.
    """
    ranks = read_named(encoding)
    end_of_text = "<|endoftext|>"
    document = orjson.loads(make_tokenizer_json(ranks.ranks, _HF_PATTERNS.get(ranks.name, ranks.pattern)))
    document["model"]["vocab"][end_of_text] = ranks.special_tokens[end_of_text]
    path.write_bytes(orjson.dumps(document))
    return end_of_text
