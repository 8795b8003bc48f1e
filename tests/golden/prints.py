"""A SHA-256 for each file of a finished output, of what in it must never change.

Files are read as docs/layout.md describes them, with no code of the product. Left out is what differs from run to run:
node, process, times, versions of libraries, versions of objects in the store, and checksums over these. Compressed
files count by their content, because libraries compress differently.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from support.corpus import zstd

_VOLATILE = {"checksum", "node", "pid", "seconds", "version", "versions", "libraries", "rangesByVersions"}
_OF_LOCAL_FILES = ("file_inode", "file_ctime")


def prints_of(files: dict[str, bytes]) -> dict[str, str]:
    """Path -> SHA-256."""
    return {path: _print_of(path, content) for path, content in sorted(files.items())}


def is_receipt(path: str) -> bool:
    """Whether this is a receipt of a range or a shard."""
    return path.startswith("_tokenization/ledger/") and path.endswith(".json")


def _print_of(path: str, content: bytes) -> str:
    if path.endswith(".jsonl.zst"):
        content = zstd.decompress(content)
    elif path == "_tokenization/plan":
        content = _plan(content)
    elif path == "_tokenization/samples":
        content = _canonical(json.loads(zstd.decompress(content)))
    elif path.endswith(".json"):
        content = _canonical(json.loads(content))
    return sha256(content).hexdigest()


def _canonical(value: object) -> bytes:
    return json.dumps(_stable(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _stable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _stable(item) for name, item in value.items() if name not in _VOLATILE}
    return [_stable(item) for item in value] if isinstance(value, list) else value


def _plan(content: bytes) -> bytes:
    """Header and sections; not how local files were when they were listed."""
    at = 16 + int.from_bytes(content[8:16], "little")
    header = json.loads(content[16:at])
    parts = [content[:8]]
    for name, size in header.pop("sections").items():
        section, at = content[at : at + size], at + size
        if name not in _OF_LOCAL_FILES:
            parts += [name.encode(), zstd.decompress(section) if name == "files" else section]
    return b"\n".join([*parts, _canonical(header)])
