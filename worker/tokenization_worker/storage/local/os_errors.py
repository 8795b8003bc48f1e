"""Maps operating-system errors on files to this project's errors."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.host.open_files import explain_open_files

_LASTING = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP)
_READING = ("list", "inspect", "read")
_NO_FOLDER = (errno.ENOTDIR, errno.EEXIST, errno.ELOOP)


def _what_is_no_folder(path: Path) -> str | None:
    """What stands at `path`, or where a folder above it belongs, in words; None where only folders do."""
    for each in (path, *path.parents):
        try:
            mode = each.stat().st_mode
        except OSError as error:
            if error.errno == errno.ELOOP and each.is_symlink():
                return f"{each} is a link that leads back to itself"
            if each.is_symlink():  # to nothing, as the error itself says
                return None
            continue
        if S_ISDIR(mode):
            return None
        return f"{each} is {'a file' if S_ISREG(mode) else 'a pipe, a socket or a device'}"
    return None


def _too_large_file(detail: str) -> SpecError:
    """The error of a file that outgrows what this process, or else the file system, allows."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == resource.RLIM_INFINITY:
        step = "write to a file system that allows larger files, or make output.shards.tokens smaller"
        return SpecError(
            "FileSizeLimit", f"{detail}: the file system does not allow a file of this size", next_step=step
        )
    return SpecError(
        "FileSizeLimit",
        f"{detail}: this process may write files of {limit:,} bytes at most (ulimit -f)",
        next_step="raise the limit (ulimit -f unlimited; for a service LimitFSIZE), and start the same command again; "
        "finished work is kept",
    )


def _output_gone(root: Path, path: Path | str) -> TemporaryError:
    """The error of a write that finds no folder: what is missing below `root` is made, so others took it away."""
    gone = "files of this run in" if root.exists() else "the output's folder"
    verb = "are" if root.exists() else "is"
    return TemporaryError(
        "StorageFailed",
        f"cannot write {path}: {gone} {root} {verb} missing: another program removed or moved them during the run",
        next_step="put it back and start the same command again, which continues the run; without it, the run starts "
        "from the beginning",
    )


@contextmanager
def map_os_errors(what: str, path: Path | str, *, root: Path | None = None) -> Iterator[None]:
    """Turn an operating-system error on `path` into the answer its reader can act on. `root`: of an output that this
    process has begun to write to."""
    try:
        yield
    except OSError as error:
        limited = explain_open_files(error)
        if limited is not None:
            raise limited from error
        if error.errno == errno.ENOENT and root is not None:
            raise _output_gone(root, path) from error
        detail = f"cannot {what} {path}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TemporaryError(
                "OutputFull",
                detail,
                next_step="free space there and start the same command again; finished work is kept",
            ) from error
        if error.errno == errno.EFBIG:
            raise _too_large_file(detail) from error
        if error.errno in (errno.EACCES, errno.EPERM) and what in _READING:
            detail = f"{detail} as user {os.geteuid()}"
            raise SpecError("OutputNotReadable", detail, next_step="give this user read permission there") from error
        if error.errno == errno.EXDEV:
            raise SpecError(
                "OutputNotWritable",
                f"{detail}: a folder of the output is on another file system, so tokjob cannot publish files there by "
                "hard links",
                next_step="keep the output on one file system: make output.uri a folder there, or a link to one",
            ) from error
        if error.errno in _NO_FOLDER and (found := _what_is_no_folder(Path(path))) is not None:
            raise SpecError(
                "OutputNotWritable", f"{found}; the output needs a folder", next_step="give --output a new folder"
            ) from error
        if error.errno in _LASTING:
            raise SpecError(
                "OutputNotWritable", detail, next_step="check the path and its owner and permissions"
            ) from error
        if error.errno == errno.ENAMETOOLONG:
            raise SpecError("SpecInvalid", detail, next_step="use a shorter output.path or output.uri") from error
        raise TemporaryError("StorageFailed", detail, next_step="start the same command again") from error


@contextmanager
def unless_gone(what: str, path: Path) -> Iterator[None]:
    """`map_os_errors`, where what is not there is no error."""
    with map_os_errors(what, path), suppress(FileNotFoundError, NotADirectoryError):
        yield
