"""`lost+found`: the folder at the root of an ext4 volume, which only root may list.

It holds what a repair of the file system found, so that neither a source nor an output has files there. A place that
is the root of a volume is read without it where this user may not list it; `closed_folder` is what a warning names.
"""

from __future__ import annotations

import os
from pathlib import Path

NAME = "lost+found"


def closed_folder(root: str | Path) -> str | None:
    """The path of `lost+found` in the folder `root`, where it exists and this user may not list it."""
    path = Path(root, NAME)
    try:
        with os.scandir(path):
            return None
    except PermissionError:
        return str(path)
    except OSError:  # it does not exist, or its reader says what is wrong with it
        return None
