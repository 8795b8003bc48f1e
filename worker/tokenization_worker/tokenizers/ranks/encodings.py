"""tiktoken encodings: maps a name or a rank file to ranks, pattern and special tokens.

tiktoken itself stays the authority for all three; the files it reads come from `rank_files`.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenization_worker.errors import SpecError
from tokenization_worker.host.temporary import temporary_file
from tokenization_worker.tokenizers.delimiter import quote_list
from tokenization_worker.tokenizers.ranks.rank_files import ENCODING_FILES, KNOWN_FILES, locate_files, unavailable

_ENVIRONMENT_LOCK = threading.Lock()


@dataclass(slots=True)
class RankTable:
    """What defines a tiktoken encoding. `ranks` is emptied when it is no longer needed (it is large)."""

    name: str
    pattern: str
    ranks: dict[bytes, int]
    special_tokens: dict[str, int]
    preset: str | None = None  # the encoding whose pattern and ranks these are
    read_file: Callable[[], bytes] | None = None  # the `*.tiktoken` file, where there is one


def read_named(name: str) -> RankTable:
    """The encoding that `name` (an encoding or a model) stands for.

    Raises SpecError (TokenizerUnavailable) for an unknown name or an unusable file, TemporaryError where
    the name is right and the network is not.
    """
    encoding = resolve_name(name)
    folder = locate_files(encoding)
    table = _construct(encoding, folder)
    rank_file = _rank_file(encoding, folder)
    return RankTable(
        name=encoding,
        pattern=table["pat_str"],
        ranks=table["mergeable_ranks"],
        special_tokens=dict(table["special_tokens"]),
        preset=_rank_encoding(encoding),
        read_file=rank_file.read_bytes if rank_file is not None else None,
    )


def read_known(encoding: str, data: bytes) -> RankTable:
    """The encoding whose `*.tiktoken` file is `data` (see KNOWN_FILES); needs no other file and no network."""
    with temporary_file(ENCODING_FILES[encoding][0].cache_name, data) as path:
        table = _construct(encoding, path.parent)
    return RankTable(
        name=encoding,
        pattern=table["pat_str"],
        ranks=table["mergeable_ranks"],
        special_tokens=dict(table["special_tokens"]),
        preset=encoding,
        read_file=lambda: data,
    )


def _rank_encoding(encoding: str) -> str | None:
    """The encoding whose file and pattern an encoding uses; None where it has no `*.tiktoken` file."""
    file = ENCODING_FILES.get(encoding, ())
    return KNOWN_FILES.get(file[0].sha256) if file else None


def _rank_file(encoding: str, folder: Path | None) -> Path | None:
    if folder is None or _rank_encoding(encoding) is None:
        return None
    return folder / ENCODING_FILES[encoding][0].cache_name


def resolve_name(name: str) -> str:
    """The encoding's name for an encoding or model name; SpecError with near matches for any other."""
    import tiktoken.model

    encodings = tiktoken.list_encoding_names()
    if name in encodings:
        return name
    try:
        return tiktoken.model.encoding_name_for_model(name)
    except KeyError:
        pass
    known = ["bytes", *encodings, *tiktoken.model.MODEL_TO_ENCODING]
    near = difflib.get_close_matches(name.lower(), dict.fromkeys(known), n=4, cutoff=0.5)
    wanted = f"did you mean {quote_list(near)}?" if near else f"known encodings: {', '.join(['bytes', *encodings])}"
    raise SpecError(
        "TokenizerUnavailable",
        f"tokenizer.name: {name!r} is neither a tiktoken encoding nor a model that uses one; {wanted}",
        next_step="a tokenizer of any other model is given by its file, tokenizer: {uri: .../tokenizer.json}, or by "
        f"its name on the Hugging Face Hub, hf:{name if '/' in name else 'org/name'} (HF_TOKEN for a gated model)",
    )


def parse_ranks(data: bytes) -> dict[bytes, int]:
    """The ranks of a `*.tiktoken` file: lines of a base64 token and its rank. Raises ValueError with the line."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), start=1):
        if not line:
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise ValueError(f"line {number}: expected a base64 token and its rank, found {line[:60]!r}") from error
    return ranks


def _construct(encoding: str, folder: Path | None) -> dict[str, Any]:
    """tiktoken's own definition of the encoding, read from the files in `folder`."""
    import tiktoken.registry

    tiktoken.list_encoding_names()  # fills the table of constructors
    constructors = tiktoken.registry.ENCODING_CONSTRUCTORS
    if constructors is None or encoding not in constructors:
        raise unavailable(f"tiktoken does not know {encoding} any more", "install the pinned version of tiktoken")
    try:
        with _cache_folder(folder):
            return constructors[encoding]()
    except (OSError, ValueError, AssertionError) as error:
        detail = str(error).partition("\n")[0]
        raise unavailable(f"{encoding} could not be loaded: {detail}", "check the rank files") from error


@contextmanager
def _cache_folder(folder: Path | None) -> Iterator[None]:
    """Point tiktoken at `folder`: the environment is the only way it takes one."""
    if folder is None:
        yield
        return
    with _ENVIRONMENT_LOCK:
        before = os.environ.get("TIKTOKEN_CACHE_DIR")
        os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
        try:
            yield
        finally:
            if before is None:
                del os.environ["TIKTOKEN_CACHE_DIR"]
            else:
                os.environ["TIKTOKEN_CACHE_DIR"] = before
