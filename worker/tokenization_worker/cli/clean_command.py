"""`tokjob clean`: remove an unfinished run's files."""

from __future__ import annotations

from tokenization_worker.cli.numbers import short_bytes
from tokenization_worker.cli.parser import CommandParser
from tokenization_worker.outlook import clean_output


def main(arguments: list[str]) -> int:
    """Remove what an unfinished run wrote; a committed or live output is refused."""
    parser = CommandParser(
        prog="tokjob clean",
        description="Remove an unfinished run's plan, ledger and shards. Refuses a committed dataset and an output "
        "that a process is writing to.",
    )
    parser.add_argument("output", help="output.uri of a job")
    parser.add_argument("--dry-run", action="store_true", help="list what would be removed")
    options = parser.parse_args(arguments)
    cleaned = clean_output(options.output, dry_run=options.dry_run)
    removed = cleaned.removed
    for entry in removed if options.dry_run else []:
        print(entry.path)
    word = "would remove" if options.dry_run else "removed"
    print(f"{word} {len(removed):,} objects, {short_bytes(sum(entry.size for entry in removed))}, at {options.output}")
    if cleaned.shards_stay:
        print("the plan is damaged, so that nobody knows which files are shards: they stay; remove them yourself")
    return 0
