"""The block `output`: where the dataset goes, its paths, and the rules between its fields and formats.

Owns fields, documentation and rules. The rules on `path` guarantee that no two shards can get one name and
that no shard lands on a file of ours (`index.json`, `shards.jsonl.zst`, `_tokenization/`): the number is the
only part of a name that varies within a split, and where two split names could run into it (`a1` + `1`,
`a` + `11`) it must have a fixed width or be kept apart. Counts that outgrow a width are refused in the plan
and at run time.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from tokenization_worker.api.data import (
    COUNT_IN_31_BITS,
    MOST_IN_31_BITS,
    DType,
    LongDocuments,
    OutputFormat,
    Packing,
    Scope,
    ShuffleUnit,
)
from tokenization_worker.api.rows import Sequence, Shards
from tokenization_worker.api.shuffle import Shuffle
from tokenization_worker.api.splits import Split, Splits
from tokenization_worker.api.types.model import Rule, SpecBlock
from tokenization_worker.api.uris import MEANT_AS_URI, NO_NUL

RERUN_PLACEHOLDER = "{rerunToken}"
OUR_NAMES = ("index.json", "shards.jsonl.zst", "_tokenization")

_WRITABLE_URI = r"^(gs://[^/]|file:///)"
_NUMBER = r"\{(index|shard)(:0([1-9]|1[0-8])d)?\}"
_PATH = rf"^([A-Za-z0-9._=+@,/-]|\{{split\}}|\{{group\}}|\{{format\}}|{_NUMBER})+$"
_BAD_PART = r"(^|/)(\.{0,2})(/|$)"
_TOUCHES_GROUP = r"\{group\}[a-z0-9-]*\{|\}[a-z0-9-]*\{group\}"
"""Names of groups have these characters, too."""
_OWN_WITH_GROUP = r"^(_[^/]*\{group\}|[^/]*\{group\}[^/]*\.(json|zst)/)"
_NUMBER_TOUCHES_SPLIT = r"\{split\}[0-9]*\{(index|shard)\}|\{(index|shard)\}[0-9]*\{split\}"

_SUFFIXES = {
    OutputFormat.RAW: ".bin",
    OutputFormat.LLMC: ".bin",
    OutputFormat.MEGATRON: ".bin .idx",
    OutputFormat.WEBDATASET: ".tar",
}
"""Beside .npy, which no path ends with."""
_NEED_ROWS = [OutputFormat.WEBDATASET.value]
_INDEX_FOLDERS = [OutputFormat.WEBDATASET.value]
"""With one index a folder, which lists the shards of a split."""
_SPLIT_IN_FOLDER = r"\{split\}.*/[^/]*\{(index|shard)[^/]*$"
_GROUP_IN_FILE = r"\{group\}[^/]*$"

OutputUri = Annotated[
    str,
    StringConstraints(min_length=1, max_length=1024),
    Rule(
        "write gs://bucket/path, file:///path or, on a laptop, a plain path; hf:// and s3:// are read only",
        cel=f"!self.matches(r'{MEANT_AS_URI}') || self.matches(r'{_WRITABLE_URI}')",
        holds=lambda uri: not re.search(MEANT_AS_URI, uri) or bool(re.match(_WRITABLE_URI, uri)),
    ),
    Rule(
        "output.uri is one folder and its only placeholder is {rerunToken}: leave out *, ? and other braces",
        cel=f"!self.replace('{RERUN_PLACEHOLDER}', '').matches(r'[{{}}*?]')",
        holds=lambda uri: not re.search(r"[{}*?]", uri.replace(RERUN_PLACEHOLDER, "")),
    ),
    NO_NUL,
]

ShardPath = Annotated[
    str,
    StringConstraints(min_length=1, max_length=256),
    Rule(
        "a path is made of letters, digits, . _ - = + @ , / and the placeholders {split}, {group}, {format}, and "
        "{index} or {shard} with a width such as {index:06d}",
        cel=f"self.matches(r'{_PATH}')",
        holds=lambda path: bool(re.fullmatch(_PATH, path)),
        shows=lambda path: _unknown_in(path),
    ),
    Rule(
        "the path is relative to output.uri: no leading or trailing /, no empty part, no . or .. as a part",
        cel=f"!self.matches(r'{_BAD_PART}')",
        holds=lambda path: not re.search(_BAD_PART, path),
    ),
    Rule(
        "the format adds its suffix: leave .npy out",
        cel="!self.endsWith('.npy')",
        holds=lambda path: not path.endswith(".npy"),
    ),
    Rule(
        "{group} runs into another placeholder, so two shards could get one name: put / or _ between them",
        cel=f"!self.matches(r'{_TOUCHES_GROUP}')",
        holds=lambda path: not re.search(_TOUCHES_GROUP, path),
    ),
    Rule(
        "with {group} in it the first part of the path could be the name of a file of ours: begin it with another word",
        cel=f"!self.matches(r'{_OWN_WITH_GROUP}')",
        holds=lambda path: not re.search(_OWN_WITH_GROUP, path),
    ),
    Rule(
        "a shard needs its number, once: write {index:06d} (within its split) or {shard:06d} (over all splits)",
        cel="self.split('{index').size() + self.split('{shard').size() == 3",
        holds=lambda path: path.count("{index") + path.count("{shard") == 1,
    ),
]


def _unknown_in(path: str) -> str:
    """The first placeholder of a path that is none, or the first character that may not be in one."""
    for part in re.findall(r"\{[^{}]*\}|.", path, re.DOTALL):
        if not re.fullmatch(_PATH, part):
            return f"{part} is no placeholder" if len(part) > 1 else f"{json.dumps(part)} may not be in a path"
    return f"found {json.dumps(path)}"


def _most_tokens(output: Output) -> int:
    """Of a shard."""
    rows = output.shards.sequences
    return output.shards.tokens if rows is None or output.sequence is None else rows * output.sequence.length


def _is_best_fit(output: Output) -> bool:
    return output.sequence is not None and output.sequence.packing is Packing.BEST_FIT


def _all_suffixes() -> list[str]:
    return list(dict.fromkeys(suffix for suffixes in _SUFFIXES.values() for suffix in suffixes.split()))


def _formats_with(suffix: str) -> list[str]:
    return [name.value for name, suffixes in _SUFFIXES.items() if suffix in suffixes.split()]


def _either(names: list[str]) -> str:
    """`A, B or C`."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def _first_parts(output: Output) -> set[str]:
    return {output.path.replace("{split}", split.name).split("/")[0] for split in output.splits}


class Output(SpecBlock):
    """The dataset: where to write it, and its layout."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "with several splits {index} begins again in each: add {split}, such as {split}/{split}_{index:06d}",
            cel="self.splits.size() < 2 || !self.path.contains('{index') || self.path.contains('{split}')",
            holds=lambda o: len(o.splits) < 2 or "{index" not in o.path or "{split}" in o.path,
            field="path",
        ),
        Rule(
            "{split} runs into the number, so two shards could get one name: write {split}_{index}, or a "
            "width as in {index:06d}",
            cel=f"self.splits.size() < 2 || !self.path.matches(r'{_NUMBER_TOUCHES_SPLIT}')",
            holds=lambda o: len(o.splits) < 2 or not re.search(_NUMBER_TOUCHES_SPLIT, o.path),
            field="path",
        ),
        Rule(
            f"shards would collide with {', '.join(OUR_NAMES)}, which are ours: begin the path with another name",
            cel=f"self.splits.all(s, !(self.path.replace('{{split}}', s.name).split('/')[0] in {list(OUR_NAMES)}))",
            holds=lambda o: not _first_parts(o) & set(OUR_NAMES),
            field="path",
        ),
        Rule(
            "{shard} counts over all splits, which shares do not allow: write {split}_{index:06d}, or give "
            "the splits leading shards",
            cel="!self.path.contains('{shard') || self.splits.all(s, !has(s.share))",
            holds=lambda o: "{shard" not in o.path or all(s.share is None for s in o.splits),
            field="path",
        ),
        Rule(
            "a format is listed twice: list each once",
            cel="self.formats.all(f, self.formats.exists_one(g, g == f))",
            holds=lambda o: len(set(o.formats)) == len(o.formats),
            field="formats",
        ),
        Rule(
            f"each format adds its suffix: leave {', '.join(_all_suffixes())} out of the end of the path",
            cel=" && ".join(
                f"(!self.path.endsWith('{suffix}') || !self.formats.exists(f, f in {_formats_with(suffix)}))"
                for suffix in _all_suffixes()
            ),
            holds=lambda o: not any(o.path.endswith(tuple(_SUFFIXES.get(f, "/").split())) for f in o.formats),
            field="path",
        ),
        Rule(
            f"{_either(_NEED_ROWS)} stores rows: add output.sequence with the length of a row",
            cel=f"has(self.sequence) || !self.formats.exists(f, f in {_NEED_ROWS})",
            holds=lambda o: o.sequence is not None or not set(o.formats) & set(_NEED_ROWS),
            field="formats",
        ),
        Rule(
            f"{_either(_INDEX_FOLDERS)} has an index in each folder, which lists the shards of one split: name the "
            "folder by the split (and the group) and the file by the number, such as {split}/shard_{index:08d}",
            cel=f"!self.formats.exists(f, f in {_INDEX_FOLDERS}) || "
            f"(self.path.matches(r'{_SPLIT_IN_FOLDER}') && !self.path.matches(r'{_GROUP_IN_FILE}'))",
            holds=lambda o: (
                not set(o.formats) & set(_INDEX_FOLDERS)
                or (bool(re.search(_SPLIT_IN_FOLDER, o.path)) and not re.search(_GROUP_IN_FILE, o.path))
            ),
            field="path",
        ),
        Rule(
            "the formats LlmC and Megatron count tokens in 31 bits: ask for at most "
            f"{MOST_IN_31_BITS:,} tokens a shard",
            cel=None,  # CEL does not read numbers such as 100M
            holds=lambda o: not set(o.formats) & COUNT_IN_31_BITS or _most_tokens(o) <= MOST_IN_31_BITS,
            field="shards.tokens",
        ),
        Rule(
            "shards.sequences counts rows: set output.sequence.length, or write shards.tokens",
            cel="!has(self.shards.sequences) || has(self.sequence)",
            holds=lambda o: o.shards.sequences is None or o.sequence is not None,
            field="shards.sequences",
        ),
        Rule(
            "with output.sequence the folder parts/ is taken by what describes the rows: begin the path, or name the "
            "split that it begins with, otherwise",
            cel="!has(self.sequence) || self.path.contains('{format}') || "
            "self.splits.all(s, self.path.replace('{split}', s.name).split('/')[0] != 'parts')",
            holds=lambda o: o.sequence is None or "{format}" in o.path or "parts" not in _first_parts(o),
            field="path",
        ),
        Rule(
            "without shuffle BestFit decides how many rows a shard has: write shards.tokens, or add shuffle",
            cel="!has(self.shards.sequences) || !has(self.sequence) || self.sequence.packing != 'BestFit' || "
            "has(self.shuffle)",
            holds=lambda o: o.shards.sequences is None or not _is_best_fit(o) or o.shuffle is not None,
            field="shards.sequences",
        ),
        Rule(
            "BestFit packs documents in the order of the source, so that only rows can be shuffled: leave out unit, or "
            "write packing: Concat",
            cel="!has(self.shuffle) || self.shuffle.unit != 'Document' || !has(self.sequence) || "
            "self.sequence.packing != 'BestFit'",
            holds=lambda o: o.shuffle is None or o.shuffle.unit is not ShuffleUnit.DOCUMENT or not _is_best_fit(o),
            field="shuffle.unit",
        ),
        Rule(
            "there are no rows: add output.sequence with the length of a row, or leave out unit",
            cel="!has(self.shuffle) || self.shuffle.unit != 'Row' || has(self.sequence)",
            holds=lambda o: o.shuffle is None or o.shuffle.unit is not ShuffleUnit.ROW or o.sequence is not None,
            field="shuffle.unit",
        ),
        Rule(
            "after a shuffle of documents no file is in one piece, so no row can begin with a file: leave out "
            "sequence.scope, or write unit: Row",
            cel="!has(self.shuffle) || self.shuffle.unit != 'Document' || !has(self.sequence) || "
            "self.sequence.scope == 'Stream'",
            holds=lambda o: (
                o.shuffle is None
                or o.shuffle.unit is not ShuffleUnit.DOCUMENT
                or o.sequence is None
                or o.sequence.scope is Scope.STREAM
            ),
            field="shuffle.unit",
        ),
        Rule(
            "rows are shuffled, so the rows of one document would stand in several splits: write share in place of "
            "shards, or pack rows with longDocuments: Truncate",
            cel="!has(self.shuffle) || self.shuffle.unit == 'Document' || !has(self.sequence) || "
            "self.sequence.longDocuments == 'Truncate' || self.splits.all(s, !has(s.shards))",
            holds=lambda o: (
                o.shuffle is None
                or o.sequence is None
                or o.shuffle.unit is ShuffleUnit.DOCUMENT
                or o.sequence.long_documents is LongDocuments.TRUNCATE
                or all(s.shards is None for s in o.splits)
            ),
            field="splits",
        ),
    )

    uri: OutputUri = Field(
        description=(
            "The folder of the dataset: gs://, file:// or, on a laptop, a plain path. It may contain "
            "{rerunToken}; then rerunToken must be set."
        ),
        examples=["gs://tokens/fineweb-edu"],
    )
    formats: list[OutputFormat] = Field(
        default=[OutputFormat.NPY],
        min_length=1,
        max_length=8,
        description=(
            "The file formats of a shard, all written from one read. Npy: a numpy array. Raw: the"
            " tokens alone, for np.memmap (nanoGPT). LlmC: llm.c's .bin. Megatron: an indexed dataset, .bin and .idx."
            " WebDataset: a .tar with a .json.gz for each row, and a manifest.jsonl in each folder."
            " With several formats, each has a folder of its own unless output.path says {format}."
        ),
        examples=[["Npy", "Megatron"]],
    )
    dtype: DType = Field(
        default=DType.AUTO,
        description=(
            "The type of a token. Auto is the smallest type for the vocabulary. A token that does not fit is an error."
        ),
        examples=["UInt32"],
    )
    shards: Shards = Field(default=Shards(), description="The size of a shard.", examples=[{"tokens": 100_000_000}])
    sequence: Sequence | None = Field(
        default=None,
        description=(
            "Rows of one length. A file for each shard, below parts/, says which piece of which document stands where;"
            " readers make masks of it. Absent: one run of tokens."
        ),
        examples=[{"length": 2049}],
    )
    shuffle: Shuffle | None = Field(
        default=None,
        description=(
            "One uniform order of the documents, or the rows, of each split, over all files and groups (with {group} in"
            " output.path: within each group). Absent: the order of the source."
        ),
        examples=[{"seed": 0}],
    )
    path: ShardPath = Field(
        default="{split}/{split}_{index:06d}",
        description=(
            "The name of a shard below output.uri. {index} counts within the split, {shard} over all splits "
            "(not with share); :06d is a width. {format} is the name of the format in lower case. With {group} each "
            "group has shards of its own, and {index} begins again in each. The format adds its suffix."
        ),
        examples=["edufineweb_{split}_{shard:06d}"],
    )
    splits: Splits = Field(
        default=[Split(name="train")],
        description=(
            "The splits, in order. All but the last have shards, or all have a share; the last one takes the "
            "rest, and must not be empty."
        ),
        examples=[[{"name": "test", "share": "0.5%"}, {"name": "train"}]],
    )
