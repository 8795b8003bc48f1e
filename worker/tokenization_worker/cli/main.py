"""`tokjob`, its first lines: they import nothing before an interrupt has its answer."""

from __future__ import annotations

import os
import sys


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    try:
        from tokenization_worker.cli.interrupts import leaving_on_interrupt

        with leaving_on_interrupt():
            from tokenization_worker.cli.dispatch import dispatch
        code = dispatch(sys.argv[1:] if argv is None else argv)
        _leave_if_stuck(code)
        return code
    except KeyboardInterrupt:  # before a command could take it, or while it ended
        print("tokjob: stopped", file=sys.stderr)
        return 130


def _leave_if_stuck(code: int) -> None:
    """End here and now where the end would wait, and all is said: for a cluster without a head, for ever; or for a call
    that was given up, and that a thread still repeats."""
    ray_connection = sys.modules.get("tokenization_worker.engine.ray.connection")
    waiting = sys.modules.get("tokenization_worker.storage.waiting")
    if (ray_connection is not None and ray_connection.is_stuck) or (waiting is not None and waiting.is_waiting()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
