"""Manifests that are wrong, with the line that says so, and some that look wrong and are right.

The command line and the API server are both held to them.
"""

from __future__ import annotations

from typing import NamedTuple

from support.manifests.api_manifests import Manifest


class Mistake(NamedTuple):
    """A patch of the spec that is wrong, and the line that the error must hold."""

    patch: Manifest
    line: str


TRAIN = {"name": "train"}
RANKS = {"name": None, "uri": "gs://m/x.tiktoken"}


def tpu(accelerator: str, topology: str, chips: int) -> Manifest:
    return {"workers": {"tpu": {"accelerator": accelerator, "topology": topology, "chipsPerHost": chips}}}


def path(template: str, splits: list[Manifest] | None = None) -> Manifest:
    return {"output": {"path": template, "splits": splits or [TRAIN]}}


GROUP: Manifest = {"name": "a", "uris": ["gs://corpus/a"]}


def groups(*each: Manifest) -> Manifest:
    """A source of these groups, each with what `GROUP` has besides."""
    return {"source": {"uris": None, "groups": [GROUP | group for group in each]}}


def splits(*written: Manifest) -> Manifest:
    return {"output": {"splits": list(written)}}


TWO: list[Manifest] = [{"name": "test", "shards": 1}, TRAIN]
SHARES: list[Manifest] = [{"name": "test", "share": "1%"}, TRAIN]


def rows(sequence: Manifest, **output: object) -> Manifest:
    return {"output": {"sequence": {"length": 2049} | sequence, **output}}


def delimiter(**fields: str) -> Manifest:
    return {"tokenizer": {"delimiter": fields}}


_NO_TOKEN, _NO_POSITION = "begin and end stand in place of token", "begin and end say where they stand"

MISTAKES: dict[str, Mistake] = {
    # --- delimiters
    "begin-token": Mistake(delimiter(begin="a", token="b"), f'delimiter.token: found "b"; {_NO_TOKEN}'),
    "begin-position": Mistake(delimiter(begin="a", position="Before"), f'position: found "Before"; {_NO_POSITION}'),
    "end-token": Mistake(delimiter(end="a", token="b"), _NO_TOKEN),
    "end-position": Mistake(delimiter(end="a", position="After"), _NO_POSITION),
    "pair-token": Mistake(delimiter(begin="a", end="b", token="c"), _NO_TOKEN),
    "pair-position": Mistake(delimiter(begin="a", end="b", position="None"), _NO_POSITION),
    "pair-same": Mistake(delimiter(begin="a", end="a"), "begin and end are the same token"),
    "begin-empty": Mistake(delimiter(begin=""), "spec.tokenizer.delimiter.begin: found"),
    "end-long": Mistake(delimiter(end="a" * 257), "spec.tokenizer.delimiter.end: found"),
    # --- rows
    "rows-short": Mistake(rows({"length": 1}), "spec.output.sequence.length: found 1; expected"),
    "rows-packing": Mistake(rows({"packing": "Fit"}), 'spec.output.sequence.packing: found "Fit"; expected'),
    "best-fit-scope": Mistake(rows({"packing": "BestFit", "scope": "File"}), "packs the documents of all files"),
    "best-fit-length": Mistake(rows({"packing": "BestFit", "length": 2**20 + 1}), "rows of at most 1,048,576 tokens"),
    "best-fit-most": Mistake(rows({"maxDocuments": 3}), "maxDocuments bounds rows that are packed"),
    "best-fit-long": Mistake(rows({"longDocuments": "Truncate"}), "longDocuments is for rows that are packed"),
    "best-fit-rows": Mistake(
        rows({"packing": "BestFit"}, shards={"sequences": 5}), "decides how many rows a shard has"
    ),
    "best-fit-shuffle": Mistake(
        rows({"packing": "BestFit"}, shuffle={"seed": 1, "unit": "Document"}), "so that only rows can be shuffled"
    ),
    "rows-pad-both": Mistake(rows({"pad": {"token": "a", "id": 1}}), "write exactly one of token and id"),
    "rows-pad-none": Mistake(rows({"pad": {}}), "write exactly one of token and id"),
    "rows-without": Mistake({"output": {"shards": {"sequences": 5}}}, "set output.sequence.length, or write shards"),
    "rows-and-tokens": Mistake(rows({}, shards={"sequences": 5, "tokens": 9}), "a size in tokens or in sequences"),
    "rows-path": Mistake(rows({}, path="parts/{index}"), "with output.sequence the folder parts/ is taken"),
    "rows-31-bits": Mistake(
        rows({}, formats=["LlmC"], shards={"sequences": 2**21}), "count tokens in 31 bits: ask for at most"
    ),
    # --- shuffle
    "shuffle-seed": Mistake({"output": {"shuffle": {}}}, "spec.output.shuffle.seed: missing; add it"),
    "shuffle-below": Mistake({"output": {"shuffle": {"seed": -1}}}, "spec.output.shuffle.seed: found -1; expected"),
    "shuffle-above": Mistake(
        {"output": {"shuffle": {"seed": 2**53}}},
        "spec.output.shuffle.seed: found 9007199254740992; expected at most 9,007,199,254,740,991",
    ),
    "shuffle-text": Mistake({"output": {"shuffle": {"seed": "1"}}}, 'spec.output.shuffle.seed: found "1"; expected'),
    "shuffle-unit": Mistake(
        {"output": {"shuffle": {"seed": 1, "unit": "Token"}}},
        'spec.output.shuffle.unit: found "Token"; expected one of Auto, Document, Row',
    ),
    "shuffle-rows": Mistake(
        {"output": {"shuffle": {"seed": 1, "unit": "Row"}}}, "there are no rows: add output.sequence"
    ),
    "shuffle-files": Mistake(
        rows({"scope": "File"}, shuffle={"seed": 1, "unit": "Document"}),
        "after a shuffle of documents no file is in one piece",
    ),
    "shuffle-leading": Mistake(
        rows({}, shuffle={"seed": 1}, splits=[{"name": "test", "shards": 1}, {"name": "train"}]),
        "rows are shuffled, so the rows of one document would stand in several splits",
    ),
    # --- fields
    "unknown-near": Mistake({"output": {"shard": {}}}, 'spec.output.shard: unknown field; did you mean "shards"?'),
    "unknown-case": Mistake(
        {"source": {"textfield": "t"}}, 'spec.source.textfield: unknown field; did you mean "textField"?'
    ),
    "unknown-far": Mistake({"documents": {"zebra": 1}}, "spec.documents.zebra: unknown field; known here: maxBytes"),
    "unknown-snake": Mistake({"rerun_token": "1"}, 'spec.rerun_token: unknown field; did you mean "rerunToken"?'),
    "unknown-item": Mistake(
        splits({"nam": "a"}, TRAIN), 'spec.output.splits[0].nam: unknown field; did you mean "name"?'
    ),
    "missing": Mistake({"source": {"uris": None}}, 'spec.source.uris: write exactly one of uris, for example ["gs://c'),
    "groups-and-uris": Mistake({"source": {"groups": [GROUP]}}, "; write exactly one of uris, for example"),
    "groups-none": Mistake(groups(), "spec.source.groups: found []; expected at least 1 entry"),
    "groups-many": Mistake(groups(*({"name": f"g{n}"} for n in range(65))), "expected at most 64 entries"),
    "splits-same": Mistake(
        splits({"name": "a", "share": "1%"}, {"name": "a", "share": "1%"}, {"name": "b"}),
        '"a" stands twice; two splits have the same name: give each its own',
    ),
    "groups-same": Mistake(groups({}, {}), '"a" stands twice; two groups have the same name: give each its own'),
    "group-name": Mistake(groups({"name": "a_b"}), 'spec.source.groups[0].name: found "a_b"; write at most 40 lower'),
    "group-name-end": Mistake(groups({"name": "a-"}), 'spec.source.groups[0].name: found "a-"; write at most 40 lower'),
    "group-uris": Mistake(groups({"uris": []}), "spec.source.groups[0].uris: found []; expected at least 1 entry"),
    "group-both": Mistake(groups({"share": "5%", "tokens": 5}), "a group has share or tokens, not both"),
    "group-share": Mistake(groups({"share": "0%"}), 'groups[0].share: found "0%"; write a percentage above 0%, such'),
    "group-share-most": Mistake(
        groups({"share": "101%"}), "write a percentage above 0%, such as 30%, and at most 100%"
    ),
    "group-share-sign": Mistake(groups({"share": "0.3"}), "a share is a percentage: write 30%"),
    "group-tokens": Mistake(groups({"tokens": "many"}), 'groups[0].tokens: found "many"; write a whole number of tok'),
    "group-tokens-none": Mistake(groups({"tokens": 0}), "spec.source.groups[0].tokens: found 0; write a whole number"),
    "missing-block": Mistake({"tokenizer": None}, "spec.tokenizer: missing; add it"),
    "no-uris": Mistake({"source": {"uris": []}}, "spec.source.uris: found []; expected at least 1 entry"),
    "many-uris": Mistake({"source": {"uris": ["a"] * 257}}, "expected at most 256 entries"),
    "empty-uri": Mistake({"source": {"uris": [""]}}, 'spec.source.uris[0]: found ""; expected at least 1 character'),
    "uri-not-list": Mistake({"source": {"uris": "gs://a/b"}}, 'spec.source.uris: found "gs://a/b"; expected a list'),
    "block-not-map": Mistake({"output": "gs://a"}, 'spec.output: found "gs://a"; expected fields'),
    "uri-scheme": Mistake(
        {"source": {"uris": ["https://a/b"]}}, 'spec.source.uris[0]: found "https://a/b"; write gs://'
    ),
    "uri-file-host": Mistake({"source": {"uris": ["file://a/b"]}}, "file:///path"),
    "uri-nul": Mistake({"source": {"uris": ["/a\0b"]}}, "leave out the NUL character"),
    "output-uri-nul": Mistake({"output": {"uri": "/a\0b"}}, "leave out the NUL character"),
    "tokenizer-uri-nul": Mistake({"tokenizer": {"name": None, "uri": "/a\0b"}}, "leave out the NUL character"),
    "tokenizer-uri": Mistake({"tokenizer": {"name": None, "uri": "ftp://a"}}, "spec.tokenizer.uri: found"),
    "enum": Mistake(
        {"source": {"format": "jsonl"}},
        'spec.source.format: found "jsonl"; expected one of Auto, Jsonl, Parquet, Text; did you mean "Jsonl"?',
    ),
    "enum-item": Mistake(
        {"output": {"formats": ["npy"]}}, 'spec.output.formats[0]: found "npy"; expected one of Npy, Raw'
    ),
    "dotted": Mistake({"source": {"textField": "a..b"}}, 'spec.source.textField: found "a..b"; write a field name'),
    "separator-empty": Mistake(
        {"source": {"format": "Text", "documentSeparator": ""}}, "spec.source.documentSeparator: found"
    ),
    "separator-format": Mistake(
        {"source": {"documentSeparator": "x"}}, 'spec.source.documentSeparator: found "x"; documentSeparator is for'
    ),
    "quantity": Mistake(
        {"documents": {"maxBytes": "64MB"}}, 'spec.documents.maxBytes: found "64MB"; write 64000000 (a number of'
    ),
    "quantity-zero": Mistake({"documents": {"maxBytes": 0}}, "spec.documents.maxBytes: found 0; write a number"),
    "quantity-float": Mistake({"rangeBytes": 1.5}, "spec.rangeBytes: found 1.5; write a number"),
    "limit": Mistake({"maxQuarantined": 0.001}, "spec.maxQuarantined: found 0.001; write 0.1% (a count such as 10"),
    "limit-word": Mistake({"maxCorruptFiles": "few"}, 'spec.maxCorruptFiles: found "few"; write a count'),
    "limit-negative": Mistake({"maxCorruptFiles": -1}, "spec.maxCorruptFiles: found -1; write a count"),
    "token-number": Mistake({"rerunToken": 7}, 'spec.rerunToken: found 7 without quotes; expected text: write "7"'),
    "token-bool": Mistake(
        {"rerunToken": True}, 'spec.rerunToken: found true without quotes; expected text: write "true"'
    ),
    "token-lines": Mistake({"rerunToken": "a\nb"}, 'spec.rerunToken: found "a\\nb"; write quoted text in one line'),
    "token-long": Mistake({"rerunToken": "a" * 129}, "expected at most 128 characters"),
    "int-text": Mistake({"workers": {"replicas": "3"}}, 'spec.workers.replicas: found "3"; expected a whole number'),
    "int-bool": Mistake({"backoffLimit": True}, "spec.backoffLimit: found true; expected a whole number"),
    "int-float": Mistake(
        {"output": {"shards": {"tokens": 1e8}}}, "spec.output.shards.tokens: found 100000000.0; expected a w"
    ),
    "int-zero": Mistake(
        {"output": {"shards": {"tokens": 0}}}, "spec.output.shards.tokens: found 0; expected at least 1"
    ),
    "int-large": Mistake({"workers": {"replicas": 2**31}}, "expected at most 2,147,483,647"),
    "bool-text": Mistake({"suspend": "yes"}, 'spec.suspend: found "yes"; expected true or false'),
    # --- tokenizer
    "tokenizer-fingerprint": Mistake({"tokenizer": {"fingerprint": "AB" * 32}}, "spec.tokenizer.fingerprint: found"),
    "tokenizer-both": Mistake({"tokenizer": {"uri": "x"}}, "spec.tokenizer: write exactly one of name"),
    "tokenizer-none": Mistake({"tokenizer": {"name": None}}, "spec.tokenizer: write exactly one of name"),
    "pattern-name": Mistake(
        {"tokenizer": {"pattern": "p", "specialTokens": {"a": 1}}}, 'spec.tokenizer.pattern: found "p"; pat'
    ),
    "special-name": Mistake(
        {"tokenizer": {"specialTokens": {"a": 1}}}, "specialTokens belong to a rank file: write uri"
    ),
    "pattern-alone": Mistake({"tokenizer": RANKS | {"pattern": "p"}}, "pattern and specialTokens go together"),
    "special-same": Mistake(
        {"tokenizer": RANKS | {"pattern": "p", "specialTokens": {"a": 1, "b": 1}}},
        "two special tokens have the same id",
    ),
    "special-id": Mistake(
        {"tokenizer": RANKS | {"pattern": "p", "specialTokens": {"a": "1"}}},
        'spec.tokenizer.specialTokens.a: found "1"; expected a whole number',
    ),
    # --- output
    "path-group-none": Mistake(
        {"output": {"path": "{group}/{index}"}}, "output.path holds {group}, and the source has"
    ),
    "path-group-touch": Mistake(
        groups({}) | {"output": {"path": "{group}-x{split}_{index}"}}, "{group} runs into another placeholder"
    ),
    "path-group-own": Mistake(groups({}) | {"output": {"path": "_{group}/{index}"}}, "could be the name of a file of"),
    "path-group-table": Mistake(groups({}) | {"output": {"path": "{group}.jsonl.zst/{index}"}}, "a file of ours"),
    "path-group-parts": Mistake(
        groups({"name": "parts"}) | {"output": {"path": "{group}/{index}", "sequence": {"length": 9}}},
        "and a group is called parts",
    ),
    "output-s3": Mistake({"output": {"uri": "s3://a/b"}}, 'spec.output.uri: found "s3://a/b"; write gs://bucket/path'),
    "output-hf": Mistake({"output": {"uri": "hf://a/b"}}, "hf:// and s3:// are read only"),
    "output-slash": Mistake({"output": {"uri": "gs:/a/b"}}, 'spec.output.uri: found "gs:/a/b"; write gs://bucket/path'),
    "output-colon": Mistake({"output": {"uri": "gs//a/b"}}, 'spec.output.uri: found "gs//a/b"; write gs://bucket/path'),
    "source-slash": Mistake({"source": {"uris": ["s3:/a/b"]}}, 'found "s3:/a/b"; write gs://bucket/path, s3://bucket'),
    "output-glob": Mistake({"output": {"uri": "gs://a/*"}}, "output.uri is one folder"),
    "output-brace": Mistake({"output": {"uri": "gs://a/{name}"}}, "its only placeholder is {rerunToken}"),
    "output-token": Mistake(
        {"output": {"uri": "gs://a/{rerunToken}"}}, "spec.rerunToken: output.uri holds {rerunToken}"
    ),
    "unsafe-token": Mistake(
        {"output": {"uri": "gs://a/{rerunToken}"}, "rerunToken": "../b"}, "rerunToken becomes a part of output.uri"
    ),
    "formats-twice": Mistake({"output": {"formats": ["Npy", "Npy"]}}, "a format is listed twice"),
    "path-absolute": Mistake(path("/a/{index}"), 'spec.output.path: found "/a/{index}"; the path is relative'),
    "path-parent": Mistake(path("a/../{index}"), "no . or .. as a part"),
    "path-dot": Mistake(path("./{index}"), "no . or .. as a part"),
    "path-empty-part": Mistake(path("a//{index}"), "no empty part"),
    "path-folder": Mistake(path("a/{index}/"), "no leading or trailing /"),
    "path-placeholder": Mistake(path("{split}_{number}"), "; {number} is no placeholder; a path is made of"),
    "path-spec": Mistake(path("{index:6d}"), "with a width such as {index:06d}"),
    "path-wide": Mistake(path("{index:019d}"), "with a width such as {index:06d}"),
    "path-letters": Mistake(path("a b {index}"), '; " " may not be in a path; a path is made of letters'),
    "path-newline": Mistake(path("a{index}\n"), "a path is made of letters"),
    "path-suffix": Mistake(path("{index}.npy"), "the format adds its suffix"),
    "path-bin": Mistake(
        {"output": {"path": "{index}.bin", "formats": ["Raw"]}}, "each format adds its suffix: leave .bin, .idx"
    ),
    "format-rows": Mistake(
        {"output": {"path": "{split}/{index}", "formats": ["WebDataset"]}},
        "WebDataset stores rows: add output.sequence",
    ),
    "format-folder": Mistake(
        {"output": {"path": "{split}_{index}", "formats": ["WebDataset"], "sequence": {"length": 64}}},
        "WebDataset has an index in each folder, which lists the shards of one split",
    ),
    "llmc-count": Mistake(
        {"output": {"shards": {"tokens": 2**31}, "formats": ["LlmC"]}},
        "the formats LlmC and Megatron count tokens in 31 bits",
    ),
    "path-no-number": Mistake(path("{split}"), "a shard needs its number, once"),
    "path-two-numbers": Mistake(path("{index}_{shard}"), "a shard needs its number, once"),
    "path-ours": Mistake(path("_tokenization/{index}"), "shards would collide with index.json"),
    "path-index-json": Mistake(
        path("index.{split}/{index}", [{"name": "json"}]), "shards would collide with index.json"
    ),
    "path-no-split": Mistake(path("{index:06d}", TWO), "with several splits {index} begins again"),
    "path-touching": Mistake(path("{split}{index}", TWO), "{split} runs into the number"),
    "path-touching-behind": Mistake(path("{shard}0{split}", TWO), "{split} runs into the number"),
    "path-shard-share": Mistake(path("{shard:06d}", SHARES), "{shard} counts over all splits"),
    # --- splits
    "split-name": Mistake(splits({"name": "Train"}), 'spec.output.splits[0].name: found "Train"; write at most 32'),
    "split-long": Mistake(splits({"name": "a" * 33}), "spec.output.splits[0].name: found"),
    "split-twice": Mistake(
        splits({"name": "train", "shards": 1}, TRAIN), 'spec.output.splits: found [{"name": "train"'
    ),
    "split-both": Mistake(splits({"name": "a", "shards": 1, "share": "1%"}, TRAIN), "a split has shards or share, not"),
    "split-neither": Mistake(splits({"name": "a"}, TRAIN), "every split but the last has shards or share"),
    "split-last": Mistake(splits({"name": "a", "shards": 1}), "the last has neither: it takes the rest"),
    "split-last-share": Mistake(splits(TRAIN, {"name": "a", "share": "1%"}), "the last has neither: it takes the rest"),
    "split-mixed": Mistake(
        splits({"name": "a", "shards": 1}, {"name": "b", "share": "1%"}, TRAIN), "shards and share cannot be mixed"
    ),
    "split-sum": Mistake(
        splits({"name": "a", "share": "60%"}, {"name": "b", "share": "40.0%"}, TRAIN),
        "the shares add up to 100% or more",
    ),
    "split-many": Mistake(
        splits(*({"name": f"s{n}", "shards": 1} for n in range(16)), TRAIN), "spec.output.splits: found"
    ),
    "share-zero": Mistake(splits({"name": "a", "share": "0.0%"}, TRAIN), "write a percentage above 0% and below 100%"),
    "share-100": Mistake(splits({"name": "a", "share": "100%"}, TRAIN), "write a percentage above 0% and below 100%"),
    "share-number": Mistake(
        splits({"name": "a", "share": 0.5}, TRAIN),
        "spec.output.splits[0].share: found 0.5; a share is a percentage: write 50%",
    ),
    # --- machines
    "replicas-many": Mistake(
        {"workers": {"replicas": 10_001}}, "spec.workers.replicas: found 10001; write at most 10000: Ray is tested"
    ),
    "min-replicas-many": Mistake(
        {"workers": {"replicas": 10_001, "minReplicas": 10_001}}, "spec.workers.minReplicas: found 10001; write at most"
    ),
    "min-replicas": Mistake(
        {"workers": {"minReplicas": 2}}, "spec.workers.minReplicas: found 2; minReplicas is at most"
    ),
    "reservation": Mistake(
        {"workers": {"capacity": "Reservation"}}, "capacity: Reservation and reservationName go together"
    ),
    "reservation-alone": Mistake({"workers": {"reservationName": "r"}}, "reservationName go together"),
    "tpu-missing": Mistake(
        {"workers": {"tpu": {}}}, 'spec.workers.tpu.accelerator: missing; add it, for example "tpu-v5-lite'
    ),
    "tpu-type": Mistake(tpu("tpu-v5e", "2x4", 8), 'spec.workers.tpu.accelerator: found "tpu-v5e"; expected one of'),
    "tpu-chips": Mistake(
        tpu("tpu-v5p-slice", "2x2x2", 8), "spec.workers.tpu.chipsPerHost: found 8; hosts of tpu-v5-lite"
    ),
    "tpu-chips-flat": Mistake(tpu("tpu-v6e-slice", "2x4", 2), "have 1, 4 or 8 chips"),
    "tpu-flat": Mistake(tpu("tpu-v5-lite-podslice", "2x2x1", 4), "have a flat topology from 1x1 to 16x16"),
    "tpu-large": Mistake(tpu("tpu-v6e-slice", "16x32", 8), "have a flat topology from 1x1 to 16x16"),
    "tpu-cube": Mistake(tpu("tpu7x", "2x4", 4), "have a topology of three sides: write for example 2x2x1"),
    "tpu-product": Mistake(tpu("tpu-v5-lite-podslice", "2x2", 8), "must be a whole number of hosts"),
    "tpu-product-cube": Mistake(tpu("tpu-v4-podslice", "1x1x2", 4), "must be a whole number of hosts"),
    "tpu-words": Mistake(tpu("tpu7x", "large", 4), 'spec.workers.tpu.topology: found "large"'),
    "resource": Mistake(
        {"head": {"resources": {"requests": {"cpu": "four"}}}}, 'spec.head.resources.requests.cpu: found "four"'
    ),
    "env-both": Mistake(
        {"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]},
        "has value or valueFrom",
    ),
    "env-number": Mistake(
        {"env": [{"name": "A", "value": 1}]},
        "spec.env[0].value: found a number (values are not shown) without quotes; expected text: w",
    ),
    "env-source": Mistake({"env": [{"name": "A", "valueFrom": {}}]}, "write exactly one of secretKeyRef"),
    "env-from": Mistake({"envFrom": [{"prefix": "A"}]}, "write exactly one of secretRef and configMapRef"),
}

ACCEPTED: dict[str, Manifest] = {
    "plain-path": {"source": {"uris": ["data/*.jsonl.zst"]}, "output": {"uri": "out"}},
    "plain-path-of-a-scheme": {"source": {"uris": ["s3/a", "gsx//a", "./hf:/a"]}, "output": {"uri": "gs/out"}},
    "groups": groups({"share": "30%"}, {"name": "b", "share": "100%"}, {"name": "c" * 40}),
    "group-path": groups({}) | {"output": {"path": "{group}/{split}_{group}_{index:04d}"}},
    "group-budgets": groups(*({"name": f"g{n}", "tokens": n} for n in (10, 2**53)), {"name": "g", "tokens": "10e9"}),
    "group-budget-unit": groups({"tokens": "10G"}, {"name": "b", "tokens": "1.5E9"}),
    "separator": {"source": {"format": "Text", "documentSeparator": "<|endoftext|>"}},
    "ranks": {"tokenizer": RANKS | {"pattern": r"\p{L}+", "specialTokens": {"<|end|>": 5}}},
    "pair": delimiter(begin="<|begin_of_text|>", end="<|end_of_text|>"),
    "begin": delimiter(begin="<|begin_of_text|>"),
    "end": delimiter(end="<|end_of_text|>"),
    "position": delimiter(position="After"),
    "no-delimiter": {"tokenizer": {"delimiter": {"token": "<|endoftext|>", "position": "None"}}},
    "token-in-uri": {"output": {"uri": "gs://a/{rerunToken}"}, "rerunToken": "2026-11-21T10:00+01:00"},
    "token-is-text": {"rerunToken": "source was fixed, try again"},
    "hive": path("split={split}/part-{index:05d}", TWO),
    "flat": path("{split}{index:06d}", TWO),
    "one-split": path("{split}{index}"),
    "no-split": path("part.{index}"),
    "leading": path("edufineweb_{split}_{shard:06d}", TWO),
    "under": path("_data/.x/{index}"),
    "shares": splits({"name": "a", "share": "49.5%"}, {"name": "b", "share": "50.499999999999%"}, TRAIN),
    "sixteen": splits(*({"name": f"s{n}", "shards": 1} for n in range(15)), TRAIN),
    "count": {"maxQuarantined": 10, "maxCorruptFiles": "100%", "rangeBytes": 65536},
    "tpu-v5e": tpu("tpu-v5-lite-podslice", "2x4", 8),
    "tpu-v5e-hosts": tpu("tpu-v5-lite-podslice", "16x16", 4),
    "tpu-v5e-single": tpu("tpu-v5-lite-podslice", "1x1", 1),
    "tpu-v4": tpu("tpu-v4-podslice", "2x2x1", 4),
    "tpu-7x": tpu("tpu7x", "4x4x8", 4),
    "replicas-most": {"workers": {"replicas": 10_000, "minReplicas": 10_000}},
    "reserved": {"workers": {"replicas": 4, "minReplicas": 4, "capacity": "Reservation", "reservationName": "r"}},
}
