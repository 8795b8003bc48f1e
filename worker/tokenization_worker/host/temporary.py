"""Maps errors of the temporary folder, which may be on another, smaller disk than the output.

What goes wrong there is told by its folder and by TMPDIR, which names another. What the files are for is left to
who writes them.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tokenization_worker.errors import TemporaryError


@contextmanager
def map_temporary_errors() -> Iterator[None]:
    """Turn an operating-system error on a temporary file into `TemporaryError`. Serves as a decorator, too."""
    try:
        yield
    except OSError as error:
        where = f" in {tempfile.tempdir}" if tempfile.tempdir else ""  # none: the message lists what was tried
        detail = f"cannot write temporary files{where}: {error.strerror or error}"
        next_step = "free space there, or set TMPDIR to a folder with room, and start the same command again"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TemporaryError("TemporaryFolderFull", detail, next_step=next_step) from error
        raise TemporaryError("StorageFailed", detail, next_step=next_step) from error


@contextmanager
def temporary_file(name: str, data: bytes) -> Iterator[Path]:
    """A file of this name that holds `data`, for code that reads nothing else; raises `TemporaryError`."""
    with ExitStack() as stack:
        with map_temporary_errors():
            path = Path(stack.enter_context(tempfile.TemporaryDirectory()), name)
            path.write_bytes(data)
        yield path
