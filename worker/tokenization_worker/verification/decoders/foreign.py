"""Recognizes files that are no corpus (docs/policy.md) by their first bytes: archives, other compressions, tables."""

from __future__ import annotations

import re
import struct

import numpy as np

_SIGNATURES = {
    "zip": rb"PK(\x03\x04|\x05\x06)",
    "7-Zip": rb"7z\xbc\xaf\x27\x1c",
    "RAR": rb"Rar!\x1a\x07",
    "bzip2": rb"BZh[0-9](1AY&SY|\x17\x72\x45\x38\x50\x90)",
    "xz": rb"\xfd7zXZ\x00",
    "lz4": rb"\x04\x22\x4d\x18",
    "lzip": rb"LZIP\x01",
    "compress": rb"\x1f\x9d",
    "Arrow": rb"ARROW1\x00\x00",
    "Feather": rb"FEA1\x00{4}",
    "Avro": rb"Obj\x01",
    "HDF5": rb"\x89HDF\r\n\x1a\n",
    "SQLite": rb"SQLite format 3\x00",
    "numpy": rb"\x93NUMPY",
    "GGUF": rb"GGUF[\x01-\xff]\x00{3}",
    "PDF": rb"%PDF-[0-9]\.",
    "Git LFS pointer": rb"version https://git-lfs\.github\.com/spec/v1\noid ",
}
_NUMBER = re.compile(rb" *[0-7]+[ \x00]*")
_PACKED_AGAIN = {"gzip": rb"\x1f\x8b\x08", "zstd": rb"\x28\xb5\x2f\xfd"}
_ANY = {name: re.compile(signature, re.DOTALL) for name, signature in _SIGNATURES.items()}
_INSIDE = _ANY | {name: re.compile(signature, re.DOTALL) for name, signature in _PACKED_AGAIN.items()}


def foreign_kind(head: bytes, *, is_packed: bool) -> str:
    """Its name, by the first bytes of the content; "" for what may be text, JSON lines or Parquet."""
    known = _INSIDE if is_packed else _ANY
    found = next((name for name, signature in known.items() if signature.match(head)), "")
    return found or ("tar" if _is_tar(head[:512]) else "")


def _is_tar(header: bytes) -> bool:
    """The octal number at 148 is the sum of all bytes, its own eight taken as spaces; bytes may be signed.

    Byte 257 says ustar, or the name ends with a NUL, and the five fields behind it are octal numbers (v7).
    """
    if len(header) != 512:
        return False
    name, *numbers, claimed, _ = struct.unpack("100s 8s 8s 8s 12s 12s 8s 356s", header)
    is_v7 = b"\x00" in name[1:] and name[0] and all(_NUMBER.fullmatch(number) for number in numbers)
    if not (header[257:262] == b"ustar" or is_v7) or not _NUMBER.fullmatch(claimed.strip(b" \x00")):
        return False
    blanked = np.frombuffer(header[:148] + b" " * 8 + header[156:], np.uint8)
    sums = blanked.sum(dtype=np.int64), blanked.view(np.int8).sum(dtype=np.int64)
    return int(claimed.strip(b" \x00"), 8) in sums
