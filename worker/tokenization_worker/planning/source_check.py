"""Finds files that do not seem to belong to the corpus: companions of a dataset, another format.

By names alone, pattern by pattern, no I/O. Names have one of five kinds: `.jsonl` and `.ndjson`; `.json`; `.parquet`;
`.txt` and `.md`; any other. Most files of a pattern, companions left out, have the **pattern's kind**. Strange are

1. companions (`README.md`, `LICENSE`, `dataset_infos.json`, ...), where that kind is JSON or Parquet; where it is
   `.json`, only five of the names that end with `.json`;
2. in a pattern with at least 3 files of its kind, files of another kind but JSON lines and Parquet, if all of them
   together are one, or one for a hundred.

Nothing is strange where `source.format` is Text, in a pattern whose kind is none of the known ones, or if it is named
outright. Patterns are looked at one by one: two patterns of two formats are a corpus of two formats.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from tokenization_worker.api.data import SourceFormat
from tokenization_worker.errors import SpecError
from tokenization_worker.messages.counts import counted
from tokenization_worker.storage.patterns import Pattern
from tokenization_worker.storage.source_file import SourceFile

_KINDS = {
    ".jsonl": "Jsonl",
    ".ndjson": "Jsonl",
    ".json": "Json",
    ".parquet": "Parquet",
    ".txt": "Text",
    ".md": "Text",
}
_OTHER = "other"
_RECORDS = ("Jsonl", "Parquet")
"""Kinds of files that hold nothing but records: nobody leaves one in a folder by accident."""
_NAME = re.compile(r"(\.[^./]*?)?(\.gz|\.zst|\.zstd)?$", re.IGNORECASE)
_COMPANION = re.compile(
    r"(readme|licen[cs]e|notice|changelog|citation|authors|manifest|provenance|checksums?|md5sums?|sha\d*sums?"
    r"|dataset_infos?|dataset_dict|metadata|state|config|croissant)(\.(md|txt|json|ya?ml|rst|html?|cff|bib))?",
    re.IGNORECASE,
)
_JSON_COMPANION = re.compile(r"(manifest|dataset_infos?|dataset_dict|croissant)\.json", re.IGNORECASE)
_FEWEST = 3
_ONE_IN = 100
_NAMED = 3
"""Strange files that are named in a message."""


def suffix_of(uri: str) -> str:
    """The end of a file's name that tells its format and compression, in lower case: `.jsonl.zst`."""
    found = _NAME.search(uri.rpartition("/")[2])
    return found.group().lower() if found else ""


def count_formats(files: Sequence[SourceFile]) -> list[tuple[str, int, tuple[str, ...]]]:
    """(suffix, files, the first names) of a source, the most frequent suffix first."""
    counts = Counter(suffix_of(file.uri) for file in files)
    names: dict[str, list[str]] = {suffix: [] for suffix in counts}
    for file in files:
        if len(known := names[suffix_of(file.uri)]) < _NAMED:
            known.append(file.uri.rpartition("/")[2])
    return [(suffix, count, tuple(names[suffix])) for suffix, count in counts.most_common()]


def find_strange(uris: Sequence[str], format: SourceFormat, files: Sequence[SourceFile]) -> SpecError | None:
    """The refusal of a source with strange files, which stand in `files` in the order of their patterns; else None."""
    if format is SourceFormat.TEXT:
        return None
    for pattern, matched in _by_pattern(uris, files):
        strange = _strange_of(matched)
        if strange:
            return _refusal(pattern, matched, strange)
    return None


def _by_pattern(uris: Sequence[str], files: Sequence[SourceFile]) -> Iterator[tuple[str, list[str]]]:
    """Each folder and glob with the files that it was the first to match."""
    at = 0
    for uri in uris:
        if at < len(files) and files[at].uri == uri:  # named outright
            at += 1
            continue
        selects: Callable[[str], bool] = Pattern.parse(uri).selects
        begin = at
        while at < len(files) and selects(files[at].uri):
            at += 1
        if at > begin:
            yield uri, [file.uri for file in files[begin:at]]


def _strange_of(uris: list[str]) -> list[str]:
    kinds = [_kind_of(suffix_of(uri)) for uri in uris]
    companions = [_is_companion(uri) for uri in uris]
    counts = Counter(kind for kind, is_companion in zip(kinds, companions, strict=True) if not is_companion)
    if not counts:
        return []
    main, most = counts.most_common(1)[0]
    if main == _OTHER:
        return []
    if main == "Json":  # a document may be called state.json there
        companions = [found and _is_companion_of_json(uri) for uri, found in zip(uris, companions, strict=True)]
        counts = Counter(kind for kind, is_companion in zip(kinds, companions, strict=True) if not is_companion)
        most = counts[main]
    few = max(1, most // _ONE_IN) if most >= _FEWEST else 0
    has_few = sum(count for kind, count in counts.items() if kind not in (main, *_RECORDS)) <= few
    return [
        uri
        for uri, kind, is_companion in zip(uris, kinds, companions, strict=True)
        if (is_companion and main != "Text") or (kind not in (main, *_RECORDS) and not is_companion and has_few)
    ]


def _is_companion(uri: str) -> bool:
    return _COMPANION.fullmatch(_unpacked_name(uri)) is not None


def _is_companion_of_json(uri: str) -> bool:
    """Whether a companion, by its name, is one among documents that are `.json` files."""
    name = _unpacked_name(uri)
    return not name.lower().endswith(".json") or _JSON_COMPANION.fullmatch(name) is not None


def _unpacked_name(uri: str) -> str:
    return re.sub(r"\.(gz|zst|zstd)$", "", uri.rpartition("/")[2], flags=re.IGNORECASE)


def _kind_of(suffix: str) -> str:
    return _KINDS.get("." + suffix.split(".")[1] if "." in suffix else "", _OTHER)


def _refusal(pattern: str, matched: list[str], strange: list[str]) -> SpecError:
    left_out = set(strange)
    wanted = [uri for uri in matched if uri not in left_out]
    names = ", ".join(uri.rpartition("/")[2] for uri in strange[:_NAMED])
    more = f" and {len(strange) - _NAMED:,} more" if len(strange) > _NAMED else ""
    suffixes = ", ".join(sorted({suffix_of(uri) or "without a suffix" for uri in wanted})[:4])
    globs = narrower(pattern, wanted, strange)
    step = f"write source.uris: {globs}" if globs else "move those files elsewhere, or list the wanted files"
    return SpecError(
        "SourceInvalid",
        f"source.uris: {pattern!r} matches {counted(len(wanted), 'file')} ({suffixes}) and "
        f"{counted(len(strange), 'file')} of another kind: {names}{more}",
        next_step=f"{step}; to read the others as documents, too, give them a pattern of their own",
    )


def narrower(pattern: str, wanted: list[str], strange: list[str]) -> list[str]:
    """Patterns that select all of `wanted` and nothing of `strange`; [] where there are none so simple."""
    suffixes = sorted({suffix_of(uri) for uri in wanted})
    if "" in suffixes:
        return []
    folder = Pattern.parse(pattern).folder
    ways = [[f"{folder}*{suffix}" for suffix in suffixes], [f"{folder}**/*{suffix}" for suffix in suffixes]]
    if "*" in pattern:
        ways.insert(0, [pattern + suffix for suffix in suffixes])
    for globs in ways:
        parsed = [Pattern.parse(glob) for glob in globs]
        if all(any(item.selects(uri) for item in parsed) for uri in wanted) and not any(
            item.selects(uri) for uri in strange for item in parsed
        ):
            return globs
    return []
