"""`tokjob clean`: remove an unfinished run's files."""

from __future__ import annotations

from tokenization_worker.cli.escapes import printable, say
from tokenization_worker.cli.numbers import counted, short_bytes
from tokenization_worker.cli.parser import CommandParser
from tokenization_worker.inspect.clean import clean_output


def main(arguments: list[str]) -> int:
    """Remove what an unfinished run wrote; a committed or live output is refused."""
    parser = CommandParser(
        prog="tokjob clean",
        description="Remove an unfinished run's plan, ledger and shards. Lists the files that it leaves, because the "
        "run did not write them. Refuses a committed dataset and an output that a process is writing to.",
    )
    parser.add_argument("output", help="output.uri of a job")
    parser.add_argument("--dry-run", action="store_true", help="list what would be removed, and what would stay")
    parser.add_argument(
        "--force",
        action="store_true",
        help="also remove a run that wrote its heartbeat in the last minutes (gs://): use it only if you know that the "
        "run was killed",
    )
    options = parser.parse_args(arguments)
    cleaned = clean_output(options.output, dry_run=options.dry_run, force=options.force)
    removed = cleaned.removed
    for entry in removed if options.dry_run else []:
        say(printable(entry.path))
    word = "would remove" if options.dry_run else "removed"
    size = short_bytes(sum(entry.size for entry in removed))
    say(f"{word} {counted(len(removed), 'object')}, {size}, at {printable(options.output)}")
    for path, reason in cleaned.stays:
        say(printable(f"not removed: {path}: {reason}"))
    if cleaned.shards_stay:
        say(
            "the plan is corrupt or missing, so clean does not know which files are shards: it leaves them; remove "
            "them yourself"
        )
    return 0
