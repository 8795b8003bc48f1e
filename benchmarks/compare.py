"""Speed of `tokjob run`, start to index, beside the leanest loop and other people's ways, on the same bytes.

    python benchmarks/compare.py --corpus FOLDER_OF_JSONL_ZST            # or nothing: a corpus from Python's sources
    python benchmarks/compare.py --corpus FOLDER --english --peers

Whole processes are timed, one after the other, in turns; every second round goes backwards. Each contender has one
run of full size before any counts, in which its tokens are compared by digest with everybody else's, as in every run
after it: a time counts only for the same tokens. Outputs are removed and the disk's queue is drained between runs.
Ratios are medians of the ratios of one round each. Slow contenders may read a part of the corpus that has the mixture
of the whole; they are then compared with tokjob on that part, too. Prints Markdown; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from contenders import (
    ONE_THREAD,
    Contender,
    Digest,
    Encoding,
    make_datatrove,
    make_leanest,
    make_nanogpt,
    make_tokjob,
    prepare_encoding,
    read_facts,
)
from corpus import Corpus, choose_evenly, link_repeated, measure_folder, parse_size, write_stdlib_corpus
from peer_tools import PeerUnavailable, install_datatrove, read_versions, write_hf_tokenizer
from processes import CommandFailed, Cost, run_command
from report import heading, note
from results import Record, choose_ratios, report_ratios, report_times

ENGLISH = "web*,docs*,books*"
STDLIB_BYTES = 320_000_000
NAMES = ("leanest", "tokjob", "leanest-1", "tokjob-1", "tokjob-part", "nanogpt", "datatrove")


def main() -> int:
    options = parse_arguments()
    options.work_dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="compare-", dir=options.work_dir))
    try:
        print(compare(options, folder))
    except CommandFailed as error:
        print(f"compare: {error}", file=sys.stderr)
        return 1
    finally:
        if options.keep:
            note(f"kept: {folder}")
        else:
            shutil.rmtree(folder)
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--corpus", type=Path, help="folder of .jsonl.zst with a field `text`; default: made from Python's own sources")
    add("--english", nargs="?", const=ENGLISH, metavar="GLOBS", help=f"only files that match ({ENGLISH})")
    add("--min-bytes", type=parse_size, default="2GB", help="text that the corpus is repeated to (2GB)")
    add("--slow-bytes", type=parse_size, default="200MB", help="text for slow contenders (200MB)")
    add("--tokenizers", default="gpt2,cl100k_base", help="tiktoken encodings (gpt2,cl100k_base)")
    add("--processes", type=int, default=2, help="worker processes of every contender (2)")
    add("--runs", type=int, default=3, help="rounds that count (3)")
    add("--only", help=f"some contenders, of {','.join(NAMES)}")
    add("--peers", action="store_true", help="datatrove too; it is installed below the work folder")
    add(
        "--hf-tokenizer",
        action="append",
        default=[],
        metavar="ENCODING=FILE",
        help="tokenizer.json for datatrove; default: one built from the ranks",
    )
    add("--work-dir", type=Path, help="for corpus and outputs (TMPDIR/tokenization-bench)")
    add("--keep", action="store_true", help="keep corpus and logs")
    options = parser.parse_args()
    options.only = options.only.split(",") if options.only else list(NAMES)
    options.tokenizers = options.tokenizers.split(",")
    options.hf_tokenizer = dict(pair.partition("=")[::2] for pair in options.hf_tokenizer)
    options.work_dir = (options.work_dir or Path(tempfile.gettempdir(), "tokenization-bench")).resolve()
    if options.runs < 1 or options.processes < 1:
        parser.error("--runs and --processes: at least 1")
    if unknown := set(options.only) - set(NAMES):
        parser.error(f"--only: {', '.join(sorted(unknown))}: not of {', '.join(NAMES)}")
    if unknown := options.hf_tokenizer.keys() - set(options.tokenizers):
        parser.error(f"--hf-tokenizer: {', '.join(sorted(unknown))}: not of {', '.join(options.tokenizers)}")
    return options


def compare(options: argparse.Namespace, folder: Path) -> str:
    """The report on all tokenizers. Raises `CommandFailed`: a run failed, or its tokens differ."""
    load = os.getloadavg()[0]
    whole, part = prepare_corpora(options, folder)
    has_part = part is not whole
    python, absent = find_datatrove(options)
    lines = [
        heading("Speed" + (f" on {options.english}" if options.english else "")),
        f"- whole corpus: {whole.describe()}",
        f"- part for slow contenders: {part.describe() if has_part else 'none, they read the whole corpus'}",
        f"- one run of each, then {options.runs} that count, in turns; load of the machine before all: {load:.2f}; "
        "one engine thread a process; MB is 10^6 bytes of text",
    ]
    if python is not None:
        lines.append(f"- peer: {read_versions(python)}")
    for name in options.tokenizers:
        bench = Bench(folder)
        encoding = prepare_encoding(name, folder)
        contenders = make_contenders(options, folder, encoding, whole, part, python)
        for corpus in {id(contender.corpus): contender.corpus for contender in contenders}.values():
            bench.learn_tokens(corpus, encoding, options.processes)
        records, refused = measure(bench, contenders, options.runs)
        ratios = choose_ratios(options.processes, nanogpt_bar=9.0 if options.english else 6.0)
        lines += ["", f"### {name}", "", report_times(records, whole), "", report_ratios(records, ratios), ""]
        lines.append(f"The same tokens from all: {bench.describe_tokens()}.")
        lines += [f"\nNot compared: {reason}" for reason in [*absent, *refused]]
    return "\n".join(lines)


def prepare_corpora(options: argparse.Namespace, folder: Path) -> tuple[Corpus, Corpus]:
    """The whole corpus and the part for slow contenders (the same object if that is all of it)."""
    source = options.corpus
    if source is None:
        source = folder / "stdlib"
        note("corpus     writing Python's own sources")
        write_stdlib_corpus(source, min(options.min_bytes, STDLIB_BYTES))
    files = measure_folder(source, options.english.split(",") if options.english else [])
    whole = link_repeated(files, folder / "whole", options.min_bytes)
    note(f"corpus     {whole.describe()}")
    if options.slow_bytes < whole.distinct_bytes:
        part = link_repeated(choose_evenly(files, options.slow_bytes), folder / "part", 1)
    else:
        part = link_repeated(files, folder / "part", options.slow_bytes)
    return whole, part if len(part.files) < len(whole.files) else whole


def find_datatrove(options: argparse.Namespace) -> tuple[Path | None, list[str]]:
    """Its interpreter, or why there is none."""
    if not options.peers or "datatrove" not in options.only:
        return None, []
    note("peer       datatrove")
    try:
        return install_datatrove(options.work_dir / "datatrove"), []
    except PeerUnavailable as error:
        return None, [f"datatrove could not be installed: {error}"]


def make_contenders(
    options: argparse.Namespace, folder: Path, encoding: Encoding, whole: Corpus, part: Corpus, python: Path | None
) -> list[Contender]:
    """Those that were asked for, but none twice."""
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
        tokenizer = folder / f"{encoding.name}.hf.json"
        if encoding.name in options.hf_tokenizer:
            shutil.copyfile(options.hf_tokenizer[encoding.name], tokenizer)
        else:
            write_hf_tokenizer(encoding.name, tokenizer)
        made.append(make_datatrove("datatrove", "datatrove", encoding, part, processes, python, tokenizer))
    return [contender for contender in made if contender.name in options.only]


def measure(bench: Bench, contenders: Sequence[Contender], runs: int) -> tuple[list[Record], list[str]]:
    """Warm up and compare, then take turns. A peer that fails or differs is left out, with the reason."""
    records: list[Record] = []
    refused: list[str] = []
    for contender in contenders:
        record = Record(contender)
        try:
            cost = bench.run(record)
        except CommandFailed as error:
            if not contender.is_peer:
                raise
            refused.append(f"{contender.name}: {error}")
            continue
        note(f"warm-up    {contender.name:<12} {cost.seconds:8.2f} s")
        records.append(record)
    for number in range(runs):
        for record in records if number % 2 == 0 else reversed(records):
            cost = bench.run(record)
            record.costs.append(cost)
            note(f"round {number + 1:<4} {record.contender.name:<12} {cost.seconds:8.2f} s")
    return records, refused


class Bench:
    """Runs contenders below one folder, for one tokenizer, and holds them to the tokens of the leanest loop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._expected: dict[Path, Digest] = {}

    def learn_tokens(self, corpus: Corpus, encoding: Encoding, processes: int) -> None:
        """Have the leanest loop say what the tokens of `corpus` are; this run is not timed."""
        contender = make_leanest("oracle", "", encoding, corpus, processes)
        output = self._folder / "output"
        run_command(contender.command(output), log=self._folder / "oracle.log", environment=ONE_THREAD)
        self._expected[corpus.folder] = contender.digest(output)
        shutil.rmtree(output)

    def run(self, record: Record) -> Cost:
        """One run from start to end, its tokens compared; raises `CommandFailed`, also if they differ."""
        contender = record.contender
        output = self._folder / "output"
        shutil.rmtree(output, ignore_errors=True)
        os.sync()  # nobody pays for what another one left to be written
        log = self._folder / f"{contender.name}.log"
        cost = run_command(contender.command(output), log=log, environment={**ONE_THREAD, **contender.environment})
        self._compare(contender, contender.digest(output))
        if contender.name.startswith("tokjob"):
            record.engine, text_bytes = read_facts(output)
            if text_bytes != contender.corpus.text_bytes:
                expected = contender.corpus.text_bytes
                raise CommandFailed(f"the index counts {text_bytes} bytes of text, the corpus has {expected}")
        shutil.rmtree(output)
        return cost

    def _compare(self, contender: Contender, found: Digest) -> None:
        expected = self._expected[contender.corpus.folder]
        if found != expected:
            raise CommandFailed(
                f"tokens of {contender.name} differ from those of the leanest loop: found {found.tokens:,} "
                f"(SHA-256 {found.sha256[:16]}), expected {expected.tokens:,} ({expected.sha256[:16]})"
            )

    def describe_tokens(self) -> str:
        """Number and digest of the tokens of each corpus that was read."""
        tokens = self._expected.items()
        return "; ".join(f"{folder.name} {digest.tokens:,}, SHA-256 `{digest.sha256}`" for folder, digest in tokens)


if __name__ == "__main__":
    sys.exit(main())
