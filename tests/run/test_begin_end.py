"""A token before every document and one after it: shards and sidecars are those of a loop over documents."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tiktoken

from support.engine.inline import inline, run_with_stops
from support.faults.plant import Planter
from support.forked_commands import TOKJOB
from support.format_oracle import SUFFIXES, files_of
from support.oracle import encoding
from support.runs import command, difference, make_job, read_index, run_command
from support.tokenizer_models import train_byte_level, train_sentencepiece, write_json, write_ranks
from tokenization_worker import open_dataset, run_job, verify
from tokenization_worker.api.data import Delimiters
from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.errors import SpecError
from tokenization_worker.inspect.preview import preview_run
from tokenization_worker.inspect.show import show_documents
from tokenization_worker.output.layout import documents_path
from tokenization_worker.pipelines.tokenize.ranges.encode import Encoder
from tokenization_worker.tokenizers.base import Encoded
from tokenization_worker.verification.report import Fault

FORMATS = ["Npy", "Raw", "Megatron"]
SHARD_TOKENS = 700
BEGIN, END = "<|begin_of_text|>", "<|end_of_text|>"
WORDS = ["the", "quick", "naïve", "日本", "0", "\n", BEGIN, END, "<s>", "</s>", "<|endoftext|>"]
SPLITS: dict[str, list[dict[str, Any]]] = {
    "one": [{"name": "train"}],
    "leading": [{"name": "test", "shards": 2}, {"name": "train"}],
    "shares": [{"name": "test", "share": "25%"}, {"name": "train"}],
}


class Kind(NamedTuple):
    """A tokenizer as a manifest names it, its two special tokens and their ids, and another way to encode with it."""

    fields: dict[str, Any]
    texts: tuple[str, str]
    ids: tuple[int, int]
    encode: Callable[[str], list[int]]
    dtype: str


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kind]:
    import sentencepiece
    import tokenizers

    folder = tmp_path_factory.mktemp("tokenizers")
    names = [{"content": BEGIN}, {"content": END}]
    document = train_byte_level(names)
    file = write_json(folder / "tokenizer.json", document)
    document["added_tokens"] = [token | {"special": False} for token in document["added_tokens"]]
    unsaid = write_json(folder / "unsaid.json", document)
    native = tokenizers.Tokenizer.from_file(str(file))
    native.encode_special_tokens = True
    model = train_sentencepiece(folder / "tokenizer.model")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    ranks, pattern = write_ranks(folder / "some.tiktoken", 1000), r"\S+|\s+"
    known = encoding("cl100k_base")._mergeable_ranks
    specials = {BEGIN: 1000, END: 1001}
    custom = tiktoken.Encoding(
        "custom",
        pat_str=pattern,
        mergeable_ranks={token: rank for token, rank in known.items() if rank < 1000},
        special_tokens=specials,
    )
    return {
        "name": Kind(
            {"name": "cl100k_base"},
            ("<|endofprompt|>", "<|endoftext|>"),
            (100276, 100257),
            encoding("cl100k_base").encode_ordinary,
            "<u4",
        ),
        **{
            name: Kind(
                {"uri": str(path)},
                (BEGIN, END),
                (600, 601),
                lambda text: native.encode(text, add_special_tokens=False).ids,
                "<u2",
            )
            for name, path in (("tokenizer.json", file), ("unsaid", unsaid))
        },
        "SentencePiece": Kind(
            {"uri": str(model)}, ("<s>", "</s>"), (1, 2), lambda text: list(pieces.encode(text, out_type=int)), "<u2"
        ),
        "ranks": Kind(
            {"uri": str(ranks), "pattern": pattern, "specialTokens": specials},
            (BEGIN, END),
            (1000, 1001),
            custom.encode_ordinary,
            "<u2",
        ),
    }


KINDS = ("name", "tokenizer.json", "SentencePiece", "ranks")


class Source(NamedTuple):
    """A corpus: where it is, and its texts."""

    folder: Path
    texts: list[str]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("source")
    chance = random.Random(7)
    texts: list[str] = []
    for file, count in enumerate([40, 0, 1, 25, 60]):
        mine = [
            " ".join(
                chance.choice(WORDS) for _ in range(0 if n % 9 == 4 else chance.randrange(400 if n % 7 == 3 else 40))
            )
            for n in range(count)
        ]
        lines = [json.dumps({"text": text}) for text in mine]
        (folder / f"{file}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        texts += mine
    return Source(folder, texts)


class Shard(NamedTuple):
    """A shard: its tokens, the tokens of each document in it, and how many of the first one are in earlier shards."""

    tokens: list[int]
    lengths: list[int]
    skipped: int
    continues: bool


def shards_of(documents: Sequence[list[int]], shard_tokens: int) -> list[Shard]:
    """One token after the other."""
    placed = [(token, number, offset) for number, each in enumerate(documents) for offset, token in enumerate(each)]
    shards = []
    for at in range(0, len(placed), shard_tokens):
        part = placed[at : at + shard_tokens]
        lengths = [len(list(group)) for _, group in itertools.groupby(part, key=lambda item: item[1])]
        last = part[-1]
        tokens = [token for token, _, _ in part]
        shards.append(Shard(tokens, lengths, part[0][2], last[2] + 1 < len(documents[last[1]])))
    return shards


def splits_of(source: Source, kind: Kind, ids: Delimiters, splits: str, shard_tokens: int) -> dict[str, list[Shard]]:
    before, after = ([] if token is None else [token] for token in (ids.begin, ids.end))
    documents = [(text, before + kind.encode(text) + after) for text in source.texts]
    if splits == "shares":
        limit = Fraction(1, 4) * 2**64 // 1
        is_test = [int.from_bytes(blake2b(t.encode(), digest_size=8).digest(), "big") < limit for t, _ in documents]
        sides = {
            name: [tokens for (_, tokens), yes in zip(documents, is_test, strict=True) if yes == (name == "test")]
            for name in ("test", "train")
        }
        return {name: shards_of(mine, shard_tokens) for name, mine in sides.items()}
    shards = shards_of([tokens for _, tokens in documents], shard_tokens)
    return {"test": shards[:2], "train": shards[2:]} if splits == "leading" else {"train": shards}


def require_shards(output: Path, split: str, shards: Sequence[Shard], dtype: str) -> None:
    """Every file and every sidecar of a split, byte for byte."""
    assert len(list((output / "npy" / split).iterdir())) == len(shards)
    for index, shard in enumerate(shards):
        tokens = np.array(shard.tokens, dtype=dtype)
        for format in FORMATS:
            for suffix, content in zip(SUFFIXES[format], files_of(format, tokens, shard.lengths), strict=True):
                path = output / format.lower() / split / f"{split}_{index:06d}{suffix}"
                assert path.read_bytes() == content, path
        sidecar = (output / documents_path(split, index)).read_bytes()
        size = int.from_bytes(sidecar[8:12], "little")
        header = json.loads(sidecar[12 : 12 + size])
        assert np.frombuffer(sidecar, "<u4", offset=12 + size + -(12 + size) % 8).tolist() == shard.lengths
        assert (header["skipped"], header["continues"]) == (shard.skipped, shard.continues)
        assert header["documents"] == len(shard.lengths) - (shard.skipped > 0)


def delimiter_of(kind: Kind, which: str) -> tuple[dict[str, str], Delimiters]:
    """The fields of a manifest, and the ids that must stand around documents."""
    (begin, end), (begin_id, end_id) = kind.texts, kind.ids
    return {
        "both": ({"begin": begin, "end": end}, Delimiters(begin_id, end_id)),
        "turned": ({"begin": end, "end": begin}, Delimiters(end_id, begin_id)),
        "begin": ({"begin": begin}, Delimiters(begin_id, None)),
        "end": ({"end": end}, Delimiters(None, end_id)),
        "none": ({"position": "None"}, Delimiters(None, None)),
    }[which]


def job_of(
    source: Source, output: Path, kind: Kind, delimiter: dict[str, str], /, splits: str = "one", **fields: Any
) -> TokenizationJob:
    layout = {"formats": FORMATS, "shards": {"tokens": SHARD_TOKENS}, "splits": SPLITS[splits]}
    job = make_job(source.folder, output, output=layout | fields.pop("output", {}), **fields).to_manifest()
    job["spec"]["tokenizer"] = {**kind.fields, "delimiter": delimiter}
    return TokenizationJob.from_object(job)


CASES = [
    (kind, which, splits)
    for kind in KINDS
    for which in ("both", "turned", "begin", "end", "none")
    for splits in SPLITS
    if kind == "ranks" or which in ("both", "end") or splits == "one"
] + [("unsaid", "both", "one"), ("unsaid", "turned", "leading")]
"""Last: a tokenizer.json that does not say that its added tokens are special."""


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("kind", "which", "splits"), CASES)
def test_documents_stand_between_their_tokens(
    source: Source, kinds: dict[str, Kind], tmp_path: Path, kind: str, which: str, splits: str
) -> None:
    """However the source is cut into ranges; verify proves it, and finds the same documents."""
    tokenizer = kinds[kind]
    delimiter, ids = delimiter_of(tokenizer, which)
    expected = splits_of(source, tokenizer, ids, splits, SHARD_TOKENS)
    for cut in (700, 10**6):
        output = tmp_path / str(cut)
        run_job(job_of(source, output, tokenizer, delimiter, splits, rangeBytes=cut), executor=inline())
        for split, shards in expected.items():
            require_shards(output, split, shards, tokenizer.dtype)
        assert difference(output, tmp_path / "700") is None
    assert verify(tmp_path / "700", mode="full", processes=1).findings == ()
    index = read_index(tmp_path / "700")
    wanted = {"delimiterId": ids.only} | ({"beginId": ids.begin, "endId": ids.end} if ids.is_pair else {})
    assert index["tokenizer"].items() >= wanted.items()
    assert ("beginId" in index["tokenizer"], "endId" in index["tokenizer"]) == (ids.is_pair, ids.is_pair)
    assert index["data"]["tokenizer"]["delimiter"] == ids.to_json()
    dataset = open_dataset(tmp_path / "700")
    assert (dataset.begin_id, dataset.end_id, dataset.delimiter_id) == (ids.begin, ids.end, ids.only)
    written = [text for text in source.texts if ids.ids or kinds[kind].encode(text)]
    bare = [document.tolist() for name in dataset for document in dataset[name].read_documents()]
    assert sorted(bare) == sorted(tokenizer.encode(text) for text in written)


@pytest.mark.parametrize("shard_tokens", [1, 2, 3, 7])
def test_shards_end_anywhere_in_a_document(kinds: dict[str, Kind], tmp_path: Path, shard_tokens: int) -> None:
    """Also between a document's last token and its end, and between the two tokens of an empty document."""
    (tmp_path / "source").mkdir()
    texts = ["a", "", "", "ab ab", "a b c d e f g", ""]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "source/a.jsonl").write_text(lines, encoding="utf-8")
    small, kind = Source(tmp_path / "source", texts), kinds["ranks"]
    delimiter, ids = delimiter_of(kind, "both")
    expected = splits_of(small, kind, ids, "one", shard_tokens)["train"]
    job = job_of(small, tmp_path / "out", kind, delimiter, output={"shards": {"tokens": shard_tokens}})
    run_job(job, executor=inline())
    require_shards(tmp_path / "out", "train", expected, kind.dtype)
    assert any(shard.continues for shard in expected)
    assert verify(tmp_path / "out", mode="full", processes=1).findings == ()


def test_format_version_2_is_that_of_two_delimiters_alone(
    source: Source, kinds: dict[str, Kind], tmp_path: Path
) -> None:
    """A dataset with one is the same however its manifest was written, and programs of 0.2 read it."""
    kind = kinds["ranks"]
    begin, end = kind.texts
    pairs = {
        "before": ({"begin": begin}, {"token": begin}),
        "after": ({"end": end}, {"token": end, "position": "After"}),
    }
    for name, (new, old) in pairs.items():
        for delimiter, output in ((new, tmp_path / f"{name}-new"), (old, tmp_path / f"{name}-old")):
            run_job(job_of(source, output, kind, delimiter, output={"formats": ["Npy"]}), executor=inline())
        first, second = (read_index(tmp_path / f"{name}-{each}") for each in ("new", "old"))
        assert first["formatVersion"] == second["formatVersion"] == 1
        assert (first["dataKey"], first["digest"], first["data"]) == (
            second["dataKey"],
            second["digest"],
            second["data"],
        )
        assert first["run"]["tokenizer"] == second["run"]["tokenizer"]
        assert difference(tmp_path / f"{name}-new", tmp_path / f"{name}-old") is None
    job = job_of(source, tmp_path / "two", kind, {"begin": begin, "end": end}, output={"formats": ["Npy"]})
    run_job(job, executor=inline())
    index = read_index(tmp_path / "two")
    assert (index["formatVersion"], index["tokenizer"]["delimiterId"]) == (2, None)
    assert index["run"]["tokenizer"].items() >= {"beginToken": begin, "endToken": end}.items()


@pytest.mark.slow
def test_processes_and_a_run_that_was_killed_change_nothing(
    source: Source, kinds: dict[str, Kind], tmp_path: Path
) -> None:
    """A run that stops after each of its first tasks ends with the same bytes; so does one in two processes."""
    kind = kinds["name"]
    delimiter, ids = delimiter_of(kind, "both")
    expected = splits_of(source, kind, ids, "shares", SHARD_TOKENS)
    job = job_of(source, tmp_path / "two", kind, delimiter, "shares", rangeBytes=2000)
    done = run_command(command(job, tmp_path / "job", "--processes", "2"))
    assert done.returncode == 0, done.stderr
    stopped = job_of(source, tmp_path / "stopped", kind, delimiter, "shares", rangeBytes=2000)
    tasks = run_with_stops(stopped, step=3)
    assert tasks > 4
    for output in ("two", "stopped"):
        for split, shards in expected.items():
            require_shards(tmp_path / output, split, shards, kind.dtype)


def test_rows_without_a_pad_are_padded_with_the_end_token(
    source: Source, kinds: dict[str, Kind], tmp_path: Path
) -> None:
    kind = kinds["ranks"]
    delimiter, ids = delimiter_of(kind, "both")
    rows = {"sequence": {"length": 128}, "shards": {"sequences": 50}, "formats": ["Npy"]}
    job = job_of(source, tmp_path / "out", kind, delimiter, output=rows)
    preview = preview_run(job)
    run_job(job, executor=inline())
    tokens = [token for shard in splits_of(source, kind, ids, "one", 10**9)["train"] for token in shard.tokens]
    assert verify(tmp_path / "out", mode="full", processes=1).findings == ()
    made = np.concatenate([np.load(path) for path in sorted((tmp_path / "out/train").iterdir())]).reshape(-1)
    assert made[: len(tokens)].tolist() == tokens
    assert len(made) > len(tokens)
    assert set(made[len(tokens) :].tolist()) == {ids.end}
    text = len(tokens) - 2 * len(source.texts)
    for found in (preview, preview_run(job)):
        assert found.tokens == len(tokens)
        assert found.rows is not None
        assert found.rows.utilization == pytest.approx(text / len(made))


def test_a_dataset_shows_its_documents_without_them(source: Source, kinds: dict[str, Kind], tmp_path: Path) -> None:
    kind = kinds["tokenizer.json"]
    delimiter, ids = delimiter_of(kind, "both")
    run_job(job_of(source, tmp_path / "out", kind, delimiter), executor=inline())
    shown = show_documents(tmp_path / "out", "train", 0, count=len(source.texts))
    assert [document.text for document in shown] == source.texts
    assert [document.note for document in shown] == [""] * len(shown)
    dataset = open_dataset(tmp_path / "out")
    start = 0
    for document, text in zip(shown, source.texts, strict=True):
        assert document.tokens.tolist() == [ids.begin, *kind.encode(text), ids.end]
        end = start + len(document.tokens)
        for token in (start, end - 1):
            place = dataset.locate("train", token)
            assert (place.start, place.tokens) == (start, len(document.tokens))
        start = end
    whole = [each.tolist() for each in dataset["train"].read_documents(with_delimiter=True)]
    assert whole == [document.tokens.tolist() for document in shown]


# ---- text that becomes a delimiter


class Fixed:
    """Gives the tokens that it was made with, whatever the texts."""

    name = "fixed"

    def __init__(self, *documents: list[int]) -> None:
        self._documents = documents

    def encode(self, texts: Sequence[str]) -> Encoded:
        ids = np.array([token for each in self._documents for token in each], dtype=np.uint32)
        return Encoded(ids, np.cumsum([len(each) for each in self._documents], dtype=np.int64))


@pytest.mark.parametrize("token", [5, 9])
@pytest.mark.parametrize("delimiters", [Delimiters(5, 9), Delimiters(9, 5), Delimiters(None, 9), Delimiters(5, None)])
def test_text_that_becomes_either_token_is_refused(delimiters: Delimiters, token: int) -> None:
    engine = Fixed([1, 2], [3, token, 4], [])
    encoder = Encoder(
        engine=engine,
        reference=engine,
        vocab_size=20,
        delimiters=delimiters,
        dtype=np.dtype("<u2"),
        sample_one_in=1,
    )
    positions = np.arange(3)
    if token not in delimiters.ids:
        encoder.encode(["a", "b", ""], positions, positions)
        return
    with pytest.raises(SpecError, match=rf"turns ordinary text into a delimiter \(id {token}\)") as caught:
        encoder.encode(["a", "b", ""], positions, positions)
    assert (caught.value.reason, caught.value.next_step) == (
        "TokenizerUnsafe",
        "choose another token for tokenizer.delimiter",
    )


def test_a_symbol_that_text_becomes_is_neither_begin_nor_end(tmp_path: Path) -> None:
    """User-defined symbols of a SentencePiece model come from text."""
    model = train_sentencepiece(tmp_path / "tokenizer.model", user_defined_symbols="<doc>")
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n', encoding="utf-8")
    for delimiter in ({"begin": "<doc>", "end": "</s>"}, {"begin": "<s>", "end": "<doc>"}):
        job = make_job(tmp_path / "a.jsonl", tmp_path / "out").to_manifest()
        job["spec"]["tokenizer"] = {"uri": str(model), "delimiter": delimiter}
        with pytest.raises(SpecError, match="TokenizerUnsafe: the text '<doc>' becomes the special token"):
            run_job(TokenizationJob.from_object(job), executor=inline())


# ---- verify


@pytest.fixture
def pair(source: Source, kinds: dict[str, Kind], tmp_path: Path) -> Path:
    delimiter, _ = delimiter_of(kinds["ranks"], "both")
    run_job(job_of(source, tmp_path / "out", kinds["ranks"], delimiter), executor=inline())
    return tmp_path / "out"


PLANTED: dict[str, tuple[Callable[[list[int]], list[int]], int, str, str]] = {
    "no end": (lambda t: t[:-1], -1, "the end token 1001 as the last token of a document", "token {before}"),
    "no begin": (lambda t: t[1:], 0, "the begin token 1000 as the first token of a document", "token {after}"),
    "begin as end": (lambda t: [*t[:-1], 1000], -1, "the begin token 1000 only as the first token", "it inside"),
    "end inside": (
        lambda t: [*t[:5], 1001, *t[6:]],
        5,
        "the end token 1001 only as the last token of a document",
        "it inside a document",
    ),
    "begin inside": (
        lambda t: [*t[:5], 1000, *t[6:]],
        5,
        "the begin token 1000 only as the first token of a document",
        "it inside a document",
    ),
    "begin twice": (lambda t: [t[0], *t], 1, "the begin token 1000 only as the first token", "it inside a document"),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("mode", ["checksums", "full"])
def test_a_delimiter_at_a_wrong_place_is_named(pair: Path, name: str, mode: str) -> None:
    """All checksums, lengths and counts are those of the planted tokens."""
    change, at, expected, found = PLANTED[name]
    planter = Planter(pair)
    number = next(
        number
        for number, document in enumerate(planter.documents)
        if number > 20 and len(document.tokens) > 8 and planter.start_of(document)[1] + len(document.tokens) < 650
    )
    document = planter.documents[number]
    tokens = list(document.tokens)
    planter.documents[number] = replace(document, tokens=tuple(change(tokens)))
    path, start = planter.start_of(planter.documents[number])
    planter.write()
    report = verify(pair, mode=mode, processes=1)
    [finding] = [each for each in report.findings if each.fault is Fault.DELIMITER_WRONG][:1]
    assert finding.path == path
    assert finding.token == start + (at if at >= 0 else len(change(tokens)) - 1)
    assert finding.expected.startswith(expected)
    assert finding.found.startswith(found.format(before=tokens[-2], after=tokens[1]))


def test_a_damaged_shard_is_reported_as_that_alone(pair: Path) -> None:
    """A delimiter among the damaged bytes is no news."""
    path = pair / "npy/train/train_000001.npy"
    tokens = np.load(path)
    tokens[int(np.flatnonzero(tokens == 1001)[0])] = 7
    np.save(path, tokens)
    faults = {finding.fault for finding in verify(pair, mode="checksums", processes=1).findings}
    assert faults >= {Fault.SHARD_CHECKSUM, Fault.FORMATS_DIFFER}
    assert Fault.DELIMITER_WRONG not in faults


# ---- the real command line


MANIFEST = """\
apiVersion: tokenization.dev/v1alpha1
kind: TokenizationJob
metadata: {{name: pair}}
spec:
  source: {{uris: [source.jsonl]}}
  tokenizer: {{name: cl100k_base, delimiter: {delimiter}}}
  output: {{uri: out}}
"""
REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "begin beside token": (
        '{begin: "<|endofprompt|>", token: "<|endoftext|>"}',
        (
            'spec.tokenizer.delimiter.token: found "<|endoftext|>"; begin and end stand in place of token: leave token',
            "next: correct this",
        ),
    ),
    "end beside position": (
        '{end: "<|endoftext|>", position: Before}',
        ('spec.tokenizer.delimiter.position: found "Before"; begin and end say where they stand: leave position out',),
    ),
    "the same": (
        '{begin: "<|endoftext|>", end: "<|endoftext|>"}',
        (
            'spec.tokenizer.delimiter.end: found "<|endoftext|>"; begin and end are the same token: write one of them, '
            "or two different ones",
        ),
    ),
    "unknown begin": (
        '{begin: "<|startoftext|>", end: "<|endoftext|>"}',
        (
            "tokenizer.delimiter.begin: '<|startoftext|>' is not a special token of cl100k_base; it has",
            "next: write one of them, or leave tokenizer.delimiter out for the tokenizer's own end of text",
        ),
    ),
    "unknown end": (
        '{begin: "<|endoftext|>", end: "<|eot_id|>"}',
        ("DelimiterUnknown: tokenizer.delimiter.end: '<|eot_id|>' is not a special token of cl100k_base; it has",),
    ),
    "unknown end alone": (
        '{end: "<|eot_id|>"}',
        ("DelimiterUnknown: tokenizer.delimiter: '<|eot_id|>' is not a special token of cl100k_base; it has",),
    ),
}


@pytest.mark.parametrize(("delimiter", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_in_words(tmp_path: Path, delimiter: str, words: tuple[str, ...]) -> None:
    (tmp_path / "source.jsonl").write_text('{"text": "a"}\n', encoding="utf-8")
    (tmp_path / "job.yaml").write_text(MANIFEST.format(delimiter=delimiter), encoding="utf-8")
    places = ["--source", str(tmp_path / "source.jsonl"), "--output", str(tmp_path / "out")]
    done = run_command([str(TOKJOB), "run", str(tmp_path / "job.yaml"), *places])
    assert (done.returncode, (tmp_path / "out").exists()) == (2, False)
    for each in words:
        assert each in done.stderr


def test_the_command_line_has_both_as_flags(tmp_path: Path) -> None:
    (tmp_path / "source.jsonl").write_text('{"text": "a"}\n{"text": ""}\n', encoding="utf-8")
    flags = ["--tokenizer.delimiter.begin", "<|endofprompt|>", "--tokenizer.delimiter.end", "<|endoftext|>"]
    job = ["--source", str(tmp_path / "source.jsonl"), "--output", str(tmp_path / "out"), "--tokenizer", "cl100k_base"]
    done = run_command([str(TOKJOB), "run", *job, *flags])
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "out/train/train_000000.npy").tolist() == [100276, 64, 100257, 100276, 100257]
    shown = run_command([str(TOKJOB), "show", str(tmp_path / "out")])
    assert "ids     [begin 100276] 64 [end 100257]" in shown.stdout
    plan = run_command([str(TOKJOB), "plan", *job, *flags])
    assert "delimiters 100276 before and 100257 after every document" in plan.stdout
    without = run_command([str(TOKJOB), "run", *job])
    assert without.returncode == 3
    assert "tokenizer.delimiter.end: the job says absent, the output has <|endoftext|>" in without.stderr
