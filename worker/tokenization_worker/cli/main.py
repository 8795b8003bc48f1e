"""`tokjob`, its first lines: they import nothing before an interrupt has its answer."""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    try:
        from tokenization_worker.cli.interrupts import leaving_on_interrupt

        with leaving_on_interrupt():
            from tokenization_worker.cli.dispatch import dispatch
        return dispatch(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:  # before a command could take it, or while it ended
        print("tokjob: stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
