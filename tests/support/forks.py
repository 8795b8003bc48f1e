"""A question put to a fork of the test's own process."""

from __future__ import annotations

import os
from collections.abc import Callable


def exit_code_of_fork(is_right: Callable[[], bool]) -> int:
    """0 where `is_right()` is true in a fork, 1 where it is false, 2 where it raises. The fork ends here in each case:
    one that went on would run the parent's tests, and speak in its name."""
    child = os.fork()
    if not child:
        code = 2
        try:
            code = 0 if is_right() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
