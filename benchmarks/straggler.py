"""What one huge compressed file costs: the same documents in the same order, in files of 1:200 and in equal files.

    python benchmarks/straggler.py --corpus FOLDER_OF_JSONL_ZST          # or nothing: a corpus from Python's sources

The first layout has one file 200 times as large as each of the others, the second in order, in one zstd frame or one
gzip member; the second layout has equal files, as many. Whole processes are timed, the layouts in turns, every second
round backwards; each has one run before any counts. Both must give the same tokens. Ratios are medians of the ratios
of one round each. Prints Markdown, and exits with 1 where the bar is missed.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

from contenders import Contender, Digest, make_tokjob, prepare_encoding
from corpus import Corpus, CorpusFile, measure_folder, parse_size, write_stdlib_corpus
from processes import CommandFailed, Cost, run_command
from report import heading, note, table

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FACTOR = 200
BAR = 1.3

PACKS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "zstd": (".zst", lambda path: zstd.ZstdFile(path, "wb", level=3)),
    "gzip": (".gz", lambda path: gzip.GzipFile(path, "wb", compresslevel=3)),
}


def main() -> int:
    options = parse_arguments()
    options.work_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="straggler-", dir=options.work_dir) as folder:
        try:
            report, is_reached = measure(options, Path(folder))
        except CommandFailed as error:
            print(f"straggler: {error}", file=sys.stderr)
            return 1
    print(report)
    return 0 if is_reached else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--corpus", type=Path, help="folder of .jsonl.zst with a field `text`; default: made from Python's own sources")
    add("--text-bytes", type=parse_size, default="800MB", help="text of each layout (800MB)")
    add("--others", type=int, default=100, help=f"files beside the one that is {FACTOR} times as large (100)")
    add("--packs", default="zstd,gzip", help="(zstd,gzip)")
    add("--tokenizer", default="cl100k_base", help="a tiktoken encoding (cl100k_base)")
    add("--processes", type=int, default=2, help="worker processes (2)")
    add("--runs", type=int, default=5, help="rounds that count (5)")
    add("--work-dir", type=Path, default=Path(tempfile.gettempdir()), help="where corpora and outputs go")
    return parser.parse_args()


def measure(options: argparse.Namespace, folder: Path) -> tuple[str, bool]:
    corpus = options.corpus
    if corpus is None:
        corpus = folder / "stdlib"
        write_stdlib_corpus(corpus, options.text_bytes)
    files = measure_folder(corpus, ())
    encoding = prepare_encoding(options.tokenizer, folder)
    rows: list[list[str]] = []
    described: list[str] = []
    is_reached = True
    for pack in options.packs.split(","):
        note(f"writing {pack}")
        layouts = write_layouts(files, folder / pack, options.text_bytes, options.others, pack)
        contenders = [
            make_tokjob(name, title, encoding, layout, options.processes) for (name, title), layout in layouts.items()
        ]
        costs = run_in_turns(contenders, options.runs, folder)
        straggler, equal = ([cost.seconds for cost in costs[contender.name]] for contender in contenders)
        ratios = [a / b for a, b in zip(straggler, equal, strict=True)]
        is_reached = is_reached and median(ratios) <= BAR
        rows += [describe(pack, contender, costs[contender.name]) for contender in contenders]
        verdict = f"{BAR:g}: " + ("reached" if median(ratios) <= BAR else "**missed**")
        rows.append([pack, "ratio", f"{median(ratios):.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}", "", verdict])
        described += [f"- {pack}, {contender.title}: {contender.corpus.describe()}" for contender in contenders]
        shutil.rmtree(folder / pack)
    header = ["packed as", "layout", "s, median", "s, min to max", "CPU s", "to stay below"]
    title = heading(f"One file {FACTOR} times as large as the others, {options.processes} processes")
    return "\n".join([title, *described, "", table(header, rows)]), is_reached


LAYOUTS = {"straggler": f"one file {FACTOR} times the others", "equal": "equal files"}


def write_layouts(
    files: Sequence[CorpusFile], folder: Path, text_bytes: int, others: int, pack: str
) -> dict[tuple[str, str], Corpus]:
    """Both layouts of the same lines; `folder` does not exist yet."""
    unit = text_bytes / (others + FACTOR)
    uneven = [unit, FACTOR * unit, *[unit] * (others - 1)]
    even = [text_bytes / (others + 1)] * (others + 1)
    distinct = sum(file.text_bytes for file in files)
    count = count_lines(files, text_bytes)
    layouts = {}
    for (name, title), sizes in zip(LAYOUTS.items(), (uneven, even), strict=True):
        target = folder / name
        target.mkdir(parents=True)
        written = tuple(write_files(repeat_lines(files), count, target, sizes, pack))
        layouts[name, title] = Corpus(target, written, min(distinct, text_bytes))
    return layouts


def repeat_lines(files: Sequence[CorpusFile]) -> Iterator[tuple[bytes, int]]:
    """The lines of all files, over and over, each with its share of the file's text."""
    while True:
        for file in files:
            with zstd.open(file.path, "rb") as lines:
                content = lines.read()
            share = file.text_bytes / len(content)
            for line in content.splitlines(keepends=True):
                yield line, round(len(line) * share)


def count_lines(files: Sequence[CorpusFile], text_bytes: int) -> int:
    """How many of the lines hold `text_bytes` of text."""
    sums = accumulate(size for _, size in repeat_lines(files))
    return next(number for number, total in enumerate(sums, 1) if total >= text_bytes)


def write_files(
    lines: Iterator[tuple[bytes, int]], count: int, folder: Path, sizes: Sequence[float], pack: str
) -> Iterator[CorpusFile]:
    """`count` lines in files of about these sizes of text, at least one in each."""
    suffix, open_packed = PACKS[pack]
    wanted = taken = 0.0
    for number, size in enumerate(sizes):
        path = folder / f"{number:05d}.jsonl{suffix}"
        wanted += size
        before, documents = taken, 0
        files_left = len(sizes) - number - 1
        with open_packed(path) as out:
            while count > files_left and (taken < wanted or not documents or not files_left):
                line, text_bytes = next(lines)
                out.write(line)
                taken += text_bytes
                documents += 1
                count -= 1
        yield CorpusFile(path, documents, round(taken - before))


def run_in_turns(contenders: Sequence[Contender], runs: int, folder: Path) -> dict[str, list[Cost]]:
    """The runs that count, by contender; raises `CommandFailed` where two of them give different tokens."""
    costs: dict[str, list[Cost]] = {contender.name: [] for contender in contenders}
    digests: dict[str, Digest] = {}
    for number in range(runs + 1):
        for contender in contenders if number % 2 else reversed(contenders):
            output = folder / "output"
            cost = run_command(contender.command(output), log=folder / "log")
            if not number:
                digests[contender.name] = contender.digest(output)
            else:
                costs[contender.name].append(cost)
            shutil.rmtree(output)
            note(
                f"{contender.title}: {cost.seconds:.2f} s, CPU {cost.cpu_seconds:.2f} s"
                + ("" if number else " (does not count)")
            )
    if len(set(digests.values())) > 1:
        raise CommandFailed(f"the layouts give different tokens: {digests}")
    return costs


def describe(pack: str, contender: Contender, costs: Sequence[Cost]) -> list[str]:
    seconds = [cost.seconds for cost in costs]
    cpu = f"{median(cost.cpu_seconds for cost in costs):.2f}"
    return [pack, contender.title, f"{median(seconds):.2f}", f"{min(seconds):.2f} to {max(seconds):.2f}", cpu, ""]


if __name__ == "__main__":
    sys.exit(main())
