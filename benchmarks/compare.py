"""Speed of `tokjob run`, start to index, beside the leanest loop and other people's ways, on the same bytes.

    python benchmarks/compare.py --corpus FOLDER_OF_JSONL_ZST            # or nothing: a corpus from Python's sources
    python benchmarks/compare.py --corpus FOLDER --english --peers

Whole processes are timed, one after the other, in turns, and the order is reversed in every second round. Each contender
has one run of full size before any counts, in which its tokens are compared by digest with everybody else's; a run whose
tokens differ never counts. Outputs are removed and the disk's queue is drained between runs. Ratios are medians of the
ratios of one round each. Slow contenders may read a part of the corpus that has the mixture of the whole.
Prints Markdown; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

from contenders import (
    ONE_THREAD,
    Contender,
    Digest,
    make_datatrove,
    make_leanest,
    make_nanogpt,
    make_tokjob,
    prepare_encoding,
    read_facts,
)
from corpus import Corpus, choose_evenly, link_repeated, measure_folder, parse_size, write_stdlib_corpus
from peers import PeerUnavailable, install_datatrove, read_versions, write_hf_tokenizer
from processes import CommandFailed, Cost, run_command
from report import heading, note, table

ENGLISH = "web*,docs*,books*"
STDLIB_BYTES = 320_000_000
NAMES = ("leanest", "tokjob", "leanest-1", "tokjob-1", "tokjob-part", "nanogpt", "datatrove")


class Ratio(NamedTuple):
    """Speed of `first` over speed of `second`; `bar` is what is to be reached."""

    title: str
    first: str
    second: str
    bar: float | None


@dataclass(slots=True)
class Record:
    """The runs of one contender that count."""

    contender: Contender
    engine: str = ""
    costs: list[Cost] = field(default_factory=list)

    @property
    def speeds(self) -> list[float]:
        """MB of text a second."""
        return [self.contender.corpus.text_bytes / 1e6 / cost.seconds for cost in self.costs]


class Bench:
    """Runs contenders below one folder; knows which tokens each corpus has."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._expected: dict[Path, tuple[str, Digest]] = {}

    def forget_tokens(self) -> None:
        """Another tokenizer comes next."""
        self._expected.clear()

    def run(self, record: Record) -> Cost:
        """One run from start to end, its tokens compared; raises `CommandFailed` also if they differ."""
        contender = record.contender
        output = self._folder / "output"
        shutil.rmtree(output, ignore_errors=True)
        os.sync()  # nobody pays for what another one left to be written
        log = self._folder / f"{contender.name}.log"
        cost = run_command(contender.command(output), log=log, environment={**ONE_THREAD, **contender.environment})
        self._compare(contender, contender.digest(output))
        if contender.name.startswith("tokjob"):
            facts = read_facts(output)
            record.engine = facts.engine
            if facts.text_bytes != contender.corpus.text_bytes:
                expected = contender.corpus.text_bytes
                raise CommandFailed(f"the index counts {facts.text_bytes} bytes of text, the corpus has {expected}")
        shutil.rmtree(output)
        return cost

    def _compare(self, contender: Contender, found: Digest) -> None:
        first, expected = self._expected.setdefault(contender.corpus.folder, (contender.name, found))
        if found != expected:
            raise CommandFailed(
                f"tokens of {contender.name} differ from those of {first}: {found.tokens:,} tokens "
                f"(sha256 {found.sha256[:16]}), expected {expected.tokens:,} ({expected.sha256[:16]})"
            )

    def digest_of(self, corpus: Corpus) -> Digest:
        return self._expected[corpus.folder][1]


def main() -> int:
    options = parse_arguments()
    options.work_dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="compare-", dir=options.work_dir))
    try:
        return compare(options, folder)
    except CommandFailed as error:
        print(f"compare: {error}", file=sys.stderr)
        return 1
    finally:
        if options.keep:
            note(f"kept: {folder}")
        else:
            shutil.rmtree(folder)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="folder of .jsonl.zst; default: made from Python's own sources")
    parser.add_argument("--english", nargs="?", const=ENGLISH, metavar="GLOBS", help=f"only these files ({ENGLISH})")
    parser.add_argument("--min-bytes", type=parse_size, default="2GB", help="text to repeat the corpus to (2GB)")
    parser.add_argument("--slow-bytes", type=parse_size, default="200MB", help="text for slow contenders (200MB)")
    parser.add_argument("--tokenizers", default="gpt2,cl100k_base", help="tiktoken encodings (gpt2,cl100k_base)")
    parser.add_argument("--processes", type=int, default=2, help="worker processes of every contender (2)")
    parser.add_argument("--runs", type=int, default=3, help="rounds that count (3)")
    parser.add_argument("--only", help=f"contenders, of {','.join(NAMES)}")
    parser.add_argument("--peers", action="store_true", help="datatrove too; installed below the work folder")
    parser.add_argument(
        "--hf-tokenizer",
        action="append",
        default=[],
        metavar="ENCODING=FILE",
        help="tokenizer.json for datatrove; default: built from the ranks",
    )
    default_folder = Path(tempfile.gettempdir(), "tokenization-bench")
    parser.add_argument("--work-dir", type=Path, default=default_folder, help=f"for everything ({default_folder})")
    parser.add_argument("--keep", action="store_true", help="keep corpus, last outputs and logs")
    options = parser.parse_args()
    options.only = options.only.split(",") if options.only else list(NAMES)
    options.tokenizers = options.tokenizers.split(",")
    if unknown := set(options.only) - set(NAMES):
        parser.error(f"--only: {', '.join(sorted(unknown))}: not of {', '.join(NAMES)}")
    if wrong := [pair for pair in options.hf_tokenizer if pair.partition("=")[0] not in options.tokenizers]:
        parser.error(f"--hf-tokenizer {wrong[0]}: expected ENCODING=FILE with one of {', '.join(options.tokenizers)}")
    options.hf_tokenizer = {
        name: Path(file).resolve() for name, _, file in map(lambda p: p.partition("="), options.hf_tokenizer)
    }
    options.work_dir = options.work_dir.resolve()
    return options


def compare(options: argparse.Namespace, folder: Path) -> int:
    """All tokenizers; prints one report."""
    whole, part = prepare_corpora(options, folder)
    python, absent = find_datatrove(options)
    bench = Bench(folder)
    sections = [
        heading("Speed" + (f" on {options.english}" if options.english else "")),
        f"- whole corpus: {whole.describe()}",
        f"- part for slow contenders: {part.describe() if part is not whole else 'none: they read the whole corpus'}",
        f"- one run of each before {options.runs} that count, in turns; load of the machine before: "
        f"{os.getloadavg()[0]:.2f}; MB is 10^6 bytes of text",
    ]
    if python is not None:
        sections.append(f"- peer: {read_versions(python)}")
    for name in options.tokenizers:
        bench.forget_tokens()
        contenders = make_contenders(options, folder, name, whole, part, python)
        records, refused = measure(bench, contenders, options.runs)
        sections += ["", f"### {name}", "", report_times(records, whole), ""]
        sections += [report_ratios(records, make_ratios(options, has_part=part is not whole)), ""]
        digests = [f"whole corpus {bench.digest_of(whole).sha256}"] if whole_was_read(records, whole) else []
        if part is not whole and whole_was_read(records, part):
            digests.append(f"part {bench.digest_of(part).sha256}")
        sections += [f"Tokens, SHA-256 of the stream, the same for all: {', '.join(digests)}."]
        sections += [f"Not compared: {reason}" for reason in [*absent, *refused]]
    print("\n".join(sections))
    return 0


def whole_was_read(records: Sequence[Record], corpus: Corpus) -> bool:
    return any(record.contender.corpus is corpus for record in records)


def prepare_corpora(options: argparse.Namespace, folder: Path) -> tuple[Corpus, Corpus]:
    """The whole corpus and the part for slow contenders (the same object if that is all of it)."""
    source = options.corpus
    if source is None:
        source = folder / "stdlib"
        note("corpus: writing Python's own sources")
        write_stdlib_corpus(source, min(options.min_bytes, STDLIB_BYTES))
    files = measure_folder(source, options.english.split(",") if options.english else [])
    whole = link_repeated(files, folder / "whole", options.min_bytes)
    note(f"corpus: {whole.describe()}")
    if options.slow_bytes >= whole.text_bytes:
        return whole, whole
    if options.slow_bytes < sum(file.text_bytes for file in files):
        files = choose_evenly(files, options.slow_bytes)
    return whole, link_repeated(files, folder / "part", min(options.slow_bytes, sum(f.text_bytes for f in files)))


def find_datatrove(options: argparse.Namespace) -> tuple[Path | None, list[str]]:
    """Its interpreter, or why there is none."""
    if not options.peers or "datatrove" not in options.only:
        return None, []
    try:
        note("peer: looking for datatrove")
        return install_datatrove(options.work_dir / "datatrove"), []
    except PeerUnavailable as error:
        return None, [f"datatrove: could not be installed: {error}"]


def make_contenders(
    options: argparse.Namespace, folder: Path, name: str, whole: Corpus, part: Corpus, python: Path | None
) -> list[Contender]:
    """Those that were asked for and that say something: not the same run twice."""
    encoding = prepare_encoding(name, folder)
    processes = options.processes
    made = [
        make_leanest("leanest", "leanest loop", encoding, whole, processes),
        make_tokjob("tokjob", "**tokjob run**", encoding, whole, processes),
    ]
    if processes > 1:
        made += [
            make_leanest("leanest-1", "leanest loop", encoding, whole, 1),
            make_tokjob("tokjob-1", "tokjob run", encoding, whole, 1),
        ]
    if part is not whole:
        made.append(make_tokjob("tokjob-part", "tokjob run", encoding, part, processes))
    made.append(make_nanogpt("nanogpt", "nanoGPT's way", encoding, part, processes))
    if python is not None:
        tokenizer = options.hf_tokenizer.get(name)
        if tokenizer is None:
            tokenizer = folder / f"{name}.tokenizer.json"
            write_hf_tokenizer(name, tokenizer)
        made.append(make_datatrove("datatrove", "datatrove", encoding, part, processes, python, tokenizer))
    return [contender for contender in made if contender.name in options.only]


def measure(bench: Bench, contenders: Sequence[Contender], runs: int) -> tuple[list[Record], list[str]]:
    """Warm up, compare, then take turns. A peer that fails or differs is left out, with the reason."""
    records: list[Record] = []
    refused: list[str] = []
    for contender in contenders:
        note(f"warm-up    {contender.name}")
        record = Record(contender)
        try:
            bench.run(record)
        except CommandFailed as error:
            if not contender.is_peer:
                raise
            refused.append(f"{contender.name}: {error}")
            continue
        records.append(record)
    for number in range(runs):
        for record in records if number % 2 == 0 else reversed(records):
            cost = bench.run(record)
            record.costs.append(cost)
            note(f"round {number + 1}    {record.contender.name:<12} {cost.seconds:8.2f} s")
    return records, refused


def make_ratios(options: argparse.Namespace, *, has_part: bool) -> list[Ratio]:
    """What is to be reached, and what helps to read it."""
    nanogpt_bar = 9.0 if options.english else 6.0
    n = options.processes
    ratios = [
        Ratio("tokjob / leanest loop", "tokjob", "leanest", 0.7),
        Ratio("tokjob / leanest loop, one process each", "tokjob-1", "leanest-1", None),
        Ratio("tokjob / nanoGPT's way", "tokjob", "nanogpt", nanogpt_bar),
        Ratio("tokjob / datatrove", "tokjob", "datatrove", None),
        Ratio(f"tokjob, {n} processes / 1", "tokjob", "tokjob-1", 1.7 if n == 2 else None),
        Ratio(f"leanest loop, {n} processes / 1", "leanest", "leanest-1", None),
    ]
    if has_part:
        ratios += [
            Ratio("tokjob on the part / nanoGPT's way", "tokjob-part", "nanogpt", None),
            Ratio("tokjob on the part / datatrove", "tokjob-part", "datatrove", None),
        ]
    return ratios


def report_times(records: Sequence[Record], whole: Corpus) -> str:
    rows = []
    for record in records:
        contender = record.contender
        seconds = [cost.seconds for cost in record.costs]
        title = contender.title + (f" (engine {record.engine})" if record.engine else "")
        rows.append(
            [
                title,
                str(contender.processes),
                "whole" if contender.corpus is whole else "part",
                f"{median(seconds):.2f}",
                f"{min(seconds):.2f} to {max(seconds):.2f}",
                "" if contender.is_peer else f"{median(cost.cpu_seconds for cost in record.costs):.2f}",
                f"{median(record.speeds):.1f}",
            ]
        )
    return table(["who", "processes", "corpus", "s, median", "s, min to max", "CPU s", "MB of text/s"], rows)


def report_ratios(records: Sequence[Record], ratios: Sequence[Ratio]) -> str:
    """Ratios of speeds, round by round."""
    by_name = {record.contender.name: record for record in records}
    rows = []
    for ratio in ratios:
        if ratio.first not in by_name or ratio.second not in by_name:
            continue
        first, second = by_name[ratio.first], by_name[ratio.second]
        values = [a / b for a, b in zip(first.speeds, second.speeds, strict=True)]
        found = median(values)
        verdict = "" if ratio.bar is None else f"{ratio.bar:g}: " + ("reached" if found >= ratio.bar else "**missed**")
        is_same = first.contender.corpus is second.contender.corpus
        on = "same bytes" if is_same else "whole corpus and part"
        rows.append([ratio.title, on, f"{found:.2f}", f"{min(values):.2f} to {max(values):.2f}", verdict])
    return table(["ratio of speeds", "on", "median of pairs", "min to max", "to reach"], rows)


if __name__ == "__main__":
    sys.exit(main())
