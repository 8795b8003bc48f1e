"""Source files on local disks."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import cast

from tokenization_worker.errors import SpecError
from tokenization_worker.storage.base import ByteReader, NotFound
from tokenization_worker.storage.open import plain_path
from tokenization_worker.storage.source_file import SourceFile


class LocalSource:
    """URIs are absolute plain paths; links to files are followed, links to folders are not."""

    def list(self, prefix: str) -> Iterator[SourceFile]:
        folder = plain_path(prefix)
        for parent, folders, names in os.walk(folder, onerror=_refuse):
            folders[:] = [name for name in folders if not name.startswith((".", "_"))]
            for name in names:
                _require_utf8(Path(parent, name))
                file = self.stat(str(Path(parent, name)))
                if file is not None:
                    yield file

    def stat(self, uri: str) -> SourceFile | None:
        path = plain_path(uri)
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _not_readable(path, error) from error
        if not S_ISREG(status.st_mode):
            return None
        if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
            raise _not_readable(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
        return _file_of(path, status)

    def is_folder(self, uri: str) -> bool:
        path = plain_path(uri)
        try:
            return path.is_dir()
        except OSError as error:
            raise _not_readable(path, error) from error

    def open(self, uri: str) -> tuple[SourceFile, ByteReader]:
        path = plain_path(uri)
        try:
            stream = path.open("rb", buffering=0)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(uri) from error
        except OSError as error:
            raise _not_readable(path, error) from error
        return _file_of(path, os.fstat(stream.fileno())), cast(ByteReader, stream)


def _file_of(path: Path, status: os.stat_result) -> SourceFile:
    return SourceFile(str(path), status.st_size, f"mtime:{status.st_mtime_ns}")


def _require_utf8(path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise SpecError(
            "SourceInvalid",
            f"{os.fsencode(path)!r}: the name is not UTF-8, and the order of files is that of their UTF-8 names",
            next_step="rename the file",
        ) from error


def _refuse(error: OSError) -> None:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return  # a pattern below a folder that is not there matches nothing
    raise _not_readable(Path(error.filename), error) from error


def _not_readable(path: Path, error: OSError) -> SpecError:
    return SpecError(
        "SourceNotReadable",
        f"cannot read {path} as user {os.geteuid()}: {error.strerror}",
        next_step="give this user read permission, or leave it out of source.uris",
    )
