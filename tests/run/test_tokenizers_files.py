"""Tokenizer files: told apart by content, refused with a next step, delimiter found or asked for."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.forks import exit_code_of_fork
from support.permissions import open_folder, without_root
from support.tokenizer_models import (
    LLAMA3_PATTERN,
    SENTENCES,
    make_spec,
    train_byte_level,
    train_sentencepiece,
    write_json,
    write_ranks,
)
from tokenization_worker.errors import SpecError
from tokenization_worker.messages.extras import install_command
from tokenization_worker.tokenizers.load import detect_kind, load_tokenizer
from tokenization_worker.tokenizers.ranks.encodings import read_named

END = {"content": "<|endoftext|>"}


@pytest.mark.parametrize("suffix", [".json", ".model", ".tiktoken", ".bin"])
def test_content_decides_whatever_the_suffix(tmp_path: Path, suffix: str) -> None:
    document = train_byte_level([END])
    assert detect_kind(write_json(tmp_path / f"a{suffix}", document).read_bytes(), "file") == "tokenizer.json"
    assert detect_kind(train_sentencepiece(tmp_path / f"b{suffix}").read_bytes(), "file") == "SentencePiece"
    assert detect_kind(write_ranks(tmp_path / f"c{suffix}", 300).read_bytes(), "file") == "ranks"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r"found an empty file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer"),
        (b"PK\x03\x04zip", "begins with"),
        (b"<html>not found</html>", "<html>"),
        (b'{"a": 1}', "has a field model; found a"),
        (
            b'{"config": {"pattern": "x", "version": "v3"}, "vocab": [], "special_tokens": []}',
            r"is a file of Mistral's Tekken, version v3, expected a tokenizer.json\n.*{name: hf:mistralai/MODEL}",
        ),
        (b'{"config": {"pattern": "x"}, "vocab": [{"rank": 0}]}', "is a file of Mistral's Tekken, expected"),
        (b'{"config": {}, "vocab": {"a": 0}}', "has a field model; found config, vocab"),
        (b'{"model": ', "not valid JSON"),
        (
            b'{"model": {"type": "Nonsense"}, "added_tokens": [{"id": 0, "content": "</s>"}]}',
            'its model, of type "Nonsense", is not one that the library tokenizers',
        ),
        (b'{"model": {"x": "BPE"}}', "its model, with x, is not one that the library tokenizers"),
        (
            b'{"model": {}, "added_tokens": [{"id": 0}]}',
            r'tokenizer.json: added_tokens\[0\] is {"id":0}, expected a token',
        ),
        (b'{"model": {}, "added_tokens": [5]}', r"tokenizer.json: added_tokens\[0\] is 5, expected a token"),
        (b'{"model": {}, "added_tokens": [{"id": "0", "content": "x"}]}', r"added_tokens\[0\] is"),
        (b'{"model": {}, "added_tokens": {"x": 0}}', r'added_tokens is {"x":0}, expected a list of tokens'),
    ],
    ids=[
        "empty",
        "lfs pointer",
        "zip",
        "html",
        "other json",
        "tekken",
        "tekken without a version",
        "not tekken",
        "cut json",
        "unknown model",
        "model without a type",
        "added token without text",
        "added token that is a number",
        "added token with a text for its id",
        "added tokens that are no list",
    ],
)
def test_other_files_are_refused_with_what_was_found(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=said) as caught:
        load_tokenizer(make_spec(uri=path))
    assert caught.value.reason == "TokenizerInvalid"
    assert caught.value.next_step


def test_a_cut_sentencepiece_model_is_refused(tmp_path: Path) -> None:
    model = train_sentencepiece(tmp_path / "sp.model")
    model.write_bytes(model.read_bytes()[:-100])
    with pytest.raises(SpecError, match="TokenizerInvalid"):
        load_tokenizer(make_spec(uri=model))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"TokenizerUnavailable: tokenizer.uri: .*there is no such file"):
        load_tokenizer(make_spec(uri=tmp_path / "nothing.json"))


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"TokenizerUnavailable: tokenizer.uri: .* cannot be read: .*name too long"):
        load_tokenizer(make_spec(uri=tmp_path / ("x" * 300)))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"TokenizerUnavailable: .* is a folder, expected a file"):
        load_tokenizer(make_spec(uri=tmp_path))


# ---- tokenizer.json


def test_only_the_tokens_of_the_text_come_out(tmp_path: Path) -> None:
    """A post-processor, truncation and padding in the file add and remove nothing."""
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [600], "tokens": ["<|endoftext|>"]}},
    }
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    padding = {
        "strategy": {"Fixed": 50},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 600,
        "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }
    plain = load_tokenizer(make_spec(uri=write_json(tmp_path / "plain.json", train_byte_level([END]))))
    fed = train_byte_level([END], post_processor=template, truncation=truncation, padding=padding)
    tokenizer = load_tokenizer(make_spec(uri=write_json(tmp_path / "fed.json", fed)))
    accelerated = tokenizer.accelerated()
    assert accelerated is not None
    for engine in (tokenizer.reference, accelerated):
        encoded = engine.encode(SENTENCES[:5])
        assert encoded.ids.tolist() == plain.reference.encode(SENTENCES[:5]).ids.tolist()
        assert tokenizer.decode(encoded.ids[: encoded.ends[0]].tolist()) == SENTENCES[0]
    assert tokenizer.fingerprint == plain.fingerprint


def test_dropout_is_refused(tmp_path: Path) -> None:
    document = train_byte_level([END])
    document["model"]["dropout"] = 0.1
    with pytest.raises(SpecError, match=r"TokenizerUnsafe: .*dropout 0.1"):
        load_tokenizer(make_spec(uri=write_json(tmp_path / "t.json", document)))


def test_added_tokens_whose_ids_the_library_would_change_are_refused(tmp_path: Path) -> None:
    document = train_byte_level([END | {"id": 700}])
    with pytest.raises(SpecError, match=r"<\|endoftext\|>.* id 700 .* 600"):
        load_tokenizer(make_spec(uri=write_json(tmp_path / "t.json", document)))


def test_pattern_and_specials_belong_to_rank_files(tmp_path: Path) -> None:
    path = write_json(tmp_path / "t.json", train_byte_level([END]))
    with pytest.raises(SpecError, match=r"tokenizer\.pattern"):
        load_tokenizer(make_spec(uri=path, pattern="x", specials={"y": 1}))


# ---- the delimiter


def added(*names: str) -> list[dict[str, Any]]:
    return [{"content": name} for name in names]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("<s>", "</s>", "<unk>"), "</s>"),
        (("<|im_start|>", "<|endoftext|>", "<|im_end|>"), "<|endoftext|>"),
        (("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"), "<|end_of_text|>"),
        (("<bos>", "<eos>"), "<eos>"),
        (("<|start_header_id|>", "<|eot_id|>"), "<|eot_id|>"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_token_that_ends_a_document_is_known_by_its_name(
    tmp_path: Path, names: tuple[str, ...], expected: str
) -> None:
    path = write_json(tmp_path / "t.json", train_byte_level(added(*names)))
    assert load_tokenizer(make_spec(uri=path)).delimiters.only == 600 + names.index(expected)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("</s>", "<|endoftext|>"), r"several candidates: '<\|endoftext\|>', '</s>'"),
        (("<pad>", "<mask>"), "none of its special tokens is a known end of text: '<pad>', '<mask>'"),
        ((), "it has no special tokens"),
    ],
    ids=["several", "none known", "none"],
)
def test_a_delimiter_that_is_not_clear_is_asked_for(tmp_path: Path, names: tuple[str, ...], said: str) -> None:
    path = write_json(tmp_path / "t.json", train_byte_level(added(*names)))
    with pytest.raises(SpecError, match=f"DelimiterRequired: .*{said}"):
        load_tokenizer(make_spec(uri=path))
    assert load_tokenizer(make_spec(uri=path, position="None")).delimiters.only is None


@pytest.mark.parametrize(
    ("name", "token", "near"),
    [
        ("gpt2", "<|endofttext|>", r"<\|endoftext\|>"),
        ("cl100k_base", "<|fim_prefx|>", r"<\|fim_prefix\|>"),
        ("bytes", "eot", r"\|endoftext\|"),
    ],
)
def test_an_unknown_delimiter_is_refused_with_the_nearest(name: str, token: str, near: str) -> None:
    with pytest.raises(SpecError, match=f"DelimiterUnknown: .*{near}"):
        load_tokenizer(make_spec(name, token=token))


def test_any_special_token_can_be_the_delimiter() -> None:
    assert load_tokenizer(make_spec("cl100k_base", token="<|endofprompt|>")).delimiters.only == 100276


def test_sentencepiece_ends_documents_with_its_own_end_symbol(tmp_path: Path) -> None:
    with_end = load_tokenizer(make_spec(uri=train_sentencepiece(tmp_path / "a.model")))
    assert with_end.delimiters.only == 2
    ids = [2, *with_end.reference.encode([SENTENCES[0]]).ids.tolist(), 9999]
    assert with_end.decode(ids) == f"</s>{SENTENCES[0]}\ufffd"
    without = train_sentencepiece(tmp_path / "b.model", eos_id=-1)
    with pytest.raises(SpecError, match="DelimiterRequired"):
        load_tokenizer(make_spec(uri=without))


# ---- rank files


def test_a_known_rank_file_needs_neither_pattern_nor_a_cache(tmp_path: Path) -> None:
    table = read_named("cl100k_base")
    assert table.read_file is not None
    path = tmp_path / "whatever.bin"
    path.write_bytes(table.read_file())
    tokenizer = load_tokenizer(make_spec(uri=path))
    named = load_tokenizer(make_spec("cl100k_base"))
    assert (tokenizer.fingerprint, tokenizer.vocab_size, tokenizer.delimiters.only) == (
        named.fingerprint,
        100277,
        100257,
    )
    accelerated = tokenizer.accelerated()
    assert accelerated is not None
    assert accelerated.encode(SENTENCES).ids.tolist() == named.reference.encode(SENTENCES).ids.tolist()


def test_an_unknown_rank_file_asks_for_pattern_and_specials(tmp_path: Path) -> None:
    path = write_ranks(tmp_path / "own.tiktoken", 1000)
    with pytest.raises(SpecError, match="Llama 3") as caught:
        load_tokenizer(make_spec(uri=path))
    assert "tokenizer.pattern and tokenizer.specialTokens" in caught.value.next_step
    tokenizer = load_tokenizer(make_spec(uri=path, pattern=LLAMA3_PATTERN, specials={"<|end_of_text|>": 1001}))
    assert (tokenizer.vocab_size, tokenizer.delimiters.only) == (1002, 1001)
    accelerated = tokenizer.accelerated()
    assert accelerated is not None
    assert accelerated.encode(SENTENCES).ids.tolist() == tokenizer.reference.encode(SENTENCES).ids.tolist()


@pytest.mark.parametrize(
    ("change", "specials", "pattern", "said"),
    [
        (lambda data: data, {"<eos>": 17}, LLAMA3_PATTERN, "an id is used twice, by a rank and by '<eos>'"),
        (lambda data: data, {"<eos>": 5000}, r"(unclosed", r"tokenizer\.pattern: the expression is refused"),
        (lambda data: data[20:], {"<eos>": 5000}, LLAMA3_PATTERN, "of 256 single bytes have no rank"),
        (lambda data: data + b"not a line at all\n", {"<eos>": 5000}, LLAMA3_PATTERN, "line 301: expected"),
    ],
    ids=["id clash", "bad pattern", "missing byte", "bad line"],
)
def test_rank_files_that_cannot_work_are_refused(
    tmp_path: Path, change: Callable[[bytes], bytes], specials: dict[str, int], pattern: str, said: str
) -> None:
    path = write_ranks(tmp_path / "own.tiktoken", 300)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(SpecError, match=said) as caught:
        load_tokenizer(make_spec(uri=path, pattern=pattern, specials=specials))
    assert caught.value.reason == "TokenizerInvalid"


def test_ranks_that_lower_ranks_do_not_build_are_encoded_alike(tmp_path: Path) -> None:
    """A token with no merge of its own is still what tiktoken gives for a piece that equals it."""
    path = write_ranks(tmp_path / "own.tiktoken", 256)
    path.write_bytes(
        path.read_bytes() + base64.b64encode(b"hello") + b" 300\n" + base64.b64encode(b" \xc3") + b" 301\n"
    )
    tokenizer = load_tokenizer(make_spec(uri=path, pattern=LLAMA3_PATTERN, specials={"<eos>": 302}))
    accelerated = tokenizer.accelerated()
    assert accelerated is not None
    texts = ["hello", "hello hello", "say hello,hello é"]
    assert 300 in tokenizer.reference.encode(texts).ids
    assert accelerated.encode(texts).ids.tolist() == tokenizer.reference.encode(texts).ids.tolist()


# ---- loading


def test_loading_twice_gives_the_same_object() -> None:
    assert load_tokenizer(make_spec("gpt2")) is load_tokenizer(make_spec("gpt2"))


def test_importing_the_loader_loads_no_tokenizer_library_and_loading_starts_no_thread() -> None:
    program = """
import json, os, sys
from tokenization_worker.api.data import DelimiterPosition, TokenizerSpec
from tokenization_worker.tokenizers.load import load_tokenizer
import numpy
heavy = sorted({"tiktoken", "fastokens", "tokenizers", "sentencepiece", "regex"} & set(sys.modules))
before = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
tokenizer = load_tokenizer(TokenizerSpec("cl100k_base", None, None, (), None, DelimiterPosition.BEFORE))
tokenizer.accelerated().encode(["some text"] * 1000)
after = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
print(json.dumps([heavy, after - before]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], 0]


@pytest.mark.parametrize(("module", "extra"), [("tokenizers", "hf"), ("sentencepiece", "sentencepiece")])
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, extra: str
) -> None:
    path = (
        write_json(tmp_path / "t.json", train_byte_level([END]))
        if module == "tokenizers"
        else train_sentencepiece(tmp_path / "t.model")
    )
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SpecError, match=f"TokenizerUnavailable: .*package {module}") as caught:
        load_tokenizer(make_spec(uri=path))
    assert caught.value.next_step == install_command(extra)


def test_a_forked_child_inherits_the_tokenizer() -> None:
    tokenizer = load_tokenizer(make_spec("gpt2"))
    expected = tokenizer.reference.encode(SENTENCES).ids.tobytes()

    def is_right() -> bool:
        engine = load_tokenizer(make_spec("gpt2")).accelerated()
        return engine is not None and engine.encode(SENTENCES).ids.tobytes() == expected

    assert exit_code_of_fork(is_right) == 0


# ---- files that cannot be used


def test_a_folder_is_answered_with_the_file_in_it(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(SpecError, match="is a folder, expected a file") as caught:
        load_tokenizer(make_spec(uri=tmp_path))
    assert caught.value.next_step == f"give the file in it: {tmp_path}/tokenizer.json"


def test_a_training_of_several_sizes_is_answered_with_its_files(tmp_path: Path) -> None:
    for size in ("300", "450"):
        (tmp_path / size).mkdir()
        (tmp_path / size / "tokenizer.model").write_text("")
    with pytest.raises(SpecError, match="is a folder, expected a file") as caught:
        load_tokenizer(make_spec(uri=tmp_path))
    files = f"{tmp_path}/300/tokenizer.model, {tmp_path}/450/tokenizer.model"
    assert caught.value.next_step == f"give one of the files in it: {files}"


def test_a_file_that_this_user_may_not_read_is_named() -> None:
    with open_folder() as folder:
        path = folder / "tokenizer.json"
        path.write_text("{}")
        path.chmod(0)
        with without_root(), pytest.raises(SpecError, match=f"TokenizerUnavailable: .*this user may not read {path}"):
            load_tokenizer(make_spec(uri=path))


def test_ranks_of_no_known_encoding_may_be_cut(tmp_path: Path) -> None:
    path = write_ranks(tmp_path / "cl100k_base.tiktoken", 300)
    with pytest.raises(SpecError, match="TokenizerInvalid") as caught:
        load_tokenizer(make_spec(uri=path))
    assert caught.value.next_step.startswith(
        "if this should be the file of cl100k_base, it is truncated or corrupt: copy it again; otherwise set "
        "tokenizer.pattern"
    )


def test_a_sentencepiece_model_that_is_cut_says_so(tmp_path: Path) -> None:
    path = train_sentencepiece(tmp_path / "a.model")
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(
        SpecError, match=r"a\.model: the model cannot be read: it is probably truncated \(2,000 bytes\)"
    ):
        load_tokenizer(make_spec(uri=path))
