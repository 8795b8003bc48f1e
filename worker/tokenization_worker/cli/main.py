"""The entry point of `tokjob`: it imports nothing before Ctrl-C is handled."""

from __future__ import annotations

import os
import sys


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    try:
        from tokenization_worker.cli.interrupts import leaving_on_interrupt

        with leaving_on_interrupt():
            from tokenization_worker.cli.dispatch import dispatch
            from tokenization_worker.stop import StopToken
        with StopToken() as stop:
            code = dispatch(sys.argv[1:] if argv is None else argv)
        if stop.must_leave:
            _leave(code)
        return code
    except KeyboardInterrupt:  # before a command could take it, or while it ended
        print("tokjob: stopped", file=sys.stderr)
        return 130


def _leave(code: int) -> None:
    """End here and now where the end would wait, and all is said: for a cluster without a head, for ever; or for a call
    that was given up, and that a thread still repeats."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
