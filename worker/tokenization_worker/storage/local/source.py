"""Source files on local disks."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISDIR, S_ISFIFO, S_ISREG
from typing import cast

from tokenization_worker.errors import SpecError, TokenizationError
from tokenization_worker.host.open_files import explain_open_files
from tokenization_worker.storage.base import ByteReader, NotFound
from tokenization_worker.storage.local.lost_and_found import NAME, closed_folder
from tokenization_worker.storage.patterns import Pattern
from tokenization_worker.storage.schemes import plain_path
from tokenization_worker.storage.source_file import SourceFile
from tokenization_worker.storage.unchanged import LocalReader, local_file


class LocalSource:
    """URIs are absolute plain paths; links are followed, and a file or folder keeps the name it was reached by."""

    connections = 1

    def list(self, pattern: Pattern) -> Iterator[SourceFile]:
        """Raises `SpecError("SourceInvalid")` for what is selected and is no file, and for a link in a circle.

        `lost+found` in the pattern's own folder is left out where this user may not list it.
        """
        root = str(plain_path(pattern.folder))
        folders: list[tuple[str, str, frozenset[str]]] = [(root, os.path.realpath(root), frozenset())]
        while folders:
            folder, real, way = folders.pop()
            if real in way:
                raise _refused(f"{folder} is {real} again, one of its parent folders: the links form a cycle")
            inside = way | {real}
            for item in _scan(folder):
                path = item.path
                enters, selected = pattern.may_enter(path), pattern.selects(path)
                if not (enters or selected):
                    continue
                _require_utf8(path)
                if _is_folder(item, path):
                    is_closed = folder == root and item.name == NAME and closed_folder(root) is not None
                    if enters and not is_closed:
                        below = os.path.realpath(path) if item.is_symlink() else str(Path(real, item.name))
                        folders.append((path, below, inside))
                elif selected or item.is_symlink():  # a link to nothing may have been meant as a folder
                    file = self.stat(path)
                    if file is not None and selected:
                        yield file

    def stat(self, uri: str) -> SourceFile | None:
        path = plain_path(uri)
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            if path.is_symlink():
                raise _refused(f"{path} is a link to {path.readlink()}, which does not exist") from None
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _refused(f"{path} is a link that leads back to itself") from error
            raise _not_readable(path, error) from error
        if S_ISDIR(status.st_mode):
            return None
        _require_file(path, status)
        if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
            raise _not_readable(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
        return local_file(str(path), status)

    def is_folder(self, uri: str) -> bool:
        path = plain_path(uri)
        try:
            return path.is_dir()
        except OSError as error:
            raise _not_readable(path, error) from error

    def open(self, uri: str) -> tuple[SourceFile, ByteReader]:
        path = plain_path(uri)
        try:
            stream = LocalReader(str(path))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(uri) from error
        except OSError as error:
            raise _not_readable(path, error) from error
        try:
            _require_file(path, os.fstat(stream.fileno()))  # it was one when it was listed
        except SpecError:
            stream.close()
            raise
        return stream.opened, cast(ByteReader, stream)


_INHERITED = ("/dev/stdin", "/dev/fd/", "/proc/self/")


def _require_file(path: Path, status: os.stat_result) -> None:
    if S_ISFIFO(status.st_mode) or str(path).startswith(_INHERITED):
        raise SpecError(
            "SourceInvalid",
            f"{path} is a pipe, or standard input; expected a file that can be read again",
            next_step="write its text to a file first (... > text.jsonl), and name that file; where a folder or glob "
            "matches it, narrow source.uris",
        )
    if not S_ISREG(status.st_mode):
        raise _refused(f"{path} is a pipe, socket or device, and not a file")


def stat_again(uri: str) -> SourceFile | None:
    """What is at the path of a listed file now; None where there is no file any more."""
    try:
        status = os.stat(uri)  # noqa: PTH116  500,000 of them
    except OSError as error:
        if error.errno in _GONE:
            return None
        raise _not_readable(Path(uri), error) from error
    return local_file(uri, status) if S_ISREG(status.st_mode) else None


_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def _scan(folder: str) -> list[os.DirEntry[str]]:
    """The entries of a folder by the bytes of their names, so that the first error is always the same one."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda item: os.fsencode(item.name))
    except (FileNotFoundError, NotADirectoryError):
        return []  # a pattern below a folder that is not there matches nothing
    except OSError as error:
        raise _not_readable(Path(folder), error) from error


def _is_folder(item: os.DirEntry[str], path: str) -> bool:
    try:
        return item.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return False
        raise _not_readable(Path(path), error) from error


def _require_utf8(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise SpecError(
            "SourceInvalid",
            f"{os.fsencode(path)!r}: the name is not UTF-8, but tokjob orders files by their UTF-8 names",
            next_step="rename the file",
        ) from error


def _refused(detail: str) -> SpecError:
    return SpecError("SourceInvalid", detail, next_step="remove it, or narrow source.uris so that they do not match it")


def _not_readable(path: Path, error: OSError) -> TokenizationError:
    if error.errno == errno.ENAMETOOLONG:
        return SpecError(
            "SourceNotReadable",
            f"{path}: the name is too long for this file system: {error.strerror}",
            next_step="correct the path: most file systems allow at most 255 bytes in a name, and 4,095 bytes in a "
            "path",
        )
    return explain_open_files(error) or SpecError(
        "SourceNotReadable",
        f"cannot read {path} as user {os.geteuid()}: {error.strerror}",
        next_step="give this user read permission, or leave it out of source.uris",
    )
