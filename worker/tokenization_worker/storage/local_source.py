"""Source files on local disks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import cast

from tokenization_worker.errors import SpecError
from tokenization_worker.storage.base import ByteReader, NotFound
from tokenization_worker.storage.local import map_os_errors
from tokenization_worker.storage.open import plain_path
from tokenization_worker.storage.sources import SourceFile


class LocalSource:
    """URIs are absolute plain paths; links to files are followed, links to folders are not."""

    def list(self, prefix: str) -> Iterator[SourceFile]:
        folder = plain_path(prefix)
        for parent, folders, names in os.walk(folder, onerror=_refuse):
            folders[:] = [name for name in folders if not name.startswith((".", "_"))]
            for name in names:
                file = self.stat(f"{parent}/{name}")
                if file is not None:
                    yield file

    def stat(self, uri: str) -> SourceFile | None:
        path = plain_path(uri)
        with map_os_errors("look at", path):
            try:
                status = path.stat()
            except (FileNotFoundError, NotADirectoryError):
                return None
        if not S_ISREG(status.st_mode):
            return None
        return SourceFile(str(path), status.st_size, f"mtime:{status.st_mtime_ns}")

    def is_folder(self, uri: str) -> bool:
        return plain_path(uri).is_dir()

    def open(self, uri: str) -> ByteReader:
        path = plain_path(uri)
        try:
            return cast(ByteReader, path.open("rb", buffering=0))
        except FileNotFoundError as error:
            raise NotFound(uri) from error
        except PermissionError as error:
            raise _not_readable(path, error) from error


def _refuse(error: OSError) -> None:
    raise _not_readable(Path(error.filename), error) from error


def _not_readable(path: Path, error: OSError) -> SpecError:
    return SpecError(
        "SourceNotReadable",
        f"cannot read {path}: {error.strerror}",
        next_step="give this user read permission, or leave the file out of source.uris",
    )
