"""Every example works as it is printed: manifests run where their files are, scripts run on a small corpus."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from support.forked_commands import run_forked
from support.format_oracle import read_llmc, read_megatron, read_tar
from support.oracle import delimited, encoding, write_by_hash, write_jaxformer, write_nanogpt
from support.places import CHECKOUT
from support.runs import TOKJOB, difference, read_index, shard_files
from support.tokenizer_models import train_byte_level, write_json
from tokenization_worker import open_dataset
from tokenization_worker.api.training.manifest import TokenizerTraining

EXAMPLES = CHECKOUT / "examples"
sys.path.insert(0, str(EXAMPLES))

import build_corpus  # noqa: E402
import train_loop  # noqa: E402

pytestmark = pytest.mark.slow

MANIFESTS = sorted(EXAMPLES.glob("*.yaml"))
TEXTS = [f"Document {number}: " + "token after token, " * (number % 40) for number in range(600)]


def run(arguments: Sequence[str], folder: Path) -> str:
    """Run a command in `folder`; returns its standard output."""
    done = run_forked(arguments, cwd=folder)
    assert done.returncode == 0, f"{arguments}\n{done.stdout.decode()}\n{done.stderr.decode()}"
    return done.stdout.decode()


def tokjob(folder: Path, *arguments: str) -> str:
    return run([str(TOKJOB), *arguments], folder)


def write_jsonl(path: Path, records: Sequence[dict[str, Any]]) -> Path:
    """JSON lines, compressed as the suffix says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    compress: Callable[[bytes], bytes] = {".gz": gzip.compress, ".zst": build_corpus.zstd.compress}[path.suffix]
    path.write_bytes(compress(data))
    return path


def write_texts(folder: Path) -> None:
    """`data/` as most examples expect it."""
    for number in range(3):
        records = [{"id": str(i), "text": text} for i, text in enumerate(TEXTS[number::3])]
        write_jsonl(folder / "data" / f"part-{number}.jsonl.zst", records)


def read_texts() -> list[str]:
    """The documents of `write_texts` in the order in which they are read."""
    return [text for number in range(3) for text in TEXTS[number::3]]


@pytest.fixture(scope="module")
def local_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder and the output of `make run`'s script, on less text."""
    out = tmp_path_factory.mktemp("local")
    script = [sys.executable, str(EXAMPLES / "run_local.py"), "--out", str(out), "--megabytes", "4"]
    return out, run(script, CHECKOUT)


def test_every_manifest_is_valid() -> None:
    printed = tokjob(CHECKOUT, "validate", *map(str, MANIFESTS))
    assert printed.count("is valid") == len(MANIFESTS)


def test_every_manifest_is_run_by_a_test() -> None:
    tests = Path(__file__).read_text(encoding="utf-8") + (EXAMPLES / "run_local.py").read_text(encoding="utf-8")
    assert [path.name for path in MANIFESTS if f'"{path.name}"' not in tests] == []


def test_a_trained_tokenizer_is_used_as_its_training_says(tmp_path: Path) -> None:
    write_texts(tmp_path)
    said = tokjob(tmp_path, "train", str(EXAMPLES / "train-tokenizer.yaml"), "--vocab-size", "300")
    block = yaml.safe_load(said[said.index("tokenizer:\n") :].partition("\n           ")[0])
    job = {
        "apiVersion": "tokenization.dev/v1alpha1",
        "kind": "TokenizationJob",
        "metadata": {"name": "pasted"},
        "spec": {"source": {"uris": ["data"]}, **block, "output": {"uri": "out/tokens"}},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job), encoding="utf-8")
    assert "600 read = 600 written" in tokjob(tmp_path, "run", "job.yaml")
    assert "nothing is wrong" in tokjob(tmp_path, "verify", "out/tokens", "--full")


@pytest.mark.parametrize("executor", ["local", pytest.param("ray", marks=pytest.mark.exhaustive)])
def test_of_three_sizes_one_is_chosen_run_and_verified(executor: str, tmp_path: Path) -> None:
    write_texts(tmp_path)
    script = [sys.executable, str(EXAMPLES / "choose_tokenizer.py"), "data", "out"]
    said = run([*script, "--sizes", "300,500,800", "--executor", executor], tmp_path)
    report = json.loads((tmp_path / "out" / "tokenizers" / "report.json").read_bytes())
    tokens = {each["name"]: each["sourceTokens"] for each in report["tokenizers"]}
    least = tokens["800/tokenizer.json"]
    chosen = next(name for name, number in tokens.items() if number <= 1.05 * least)
    assert f"chosen: {chosen}, " in said
    made = json.loads((tmp_path / "out" / "tokens" / "index.json").read_bytes())["tokenizer"]["fingerprint"]
    [fingerprint] = [each["fingerprint"] for each in report["tokenizers"] if each["name"] == chosen]
    assert made == fingerprint
    assert "nothing is wrong" in said


def test_the_training_on_kubernetes_is_valid() -> None:
    settings, job = yaml.safe_load_all((EXAMPLES / "kubernetes" / "train-tokenizer.yaml").read_text(encoding="utf-8"))
    assert TokenizerTraining.from_yaml(settings["data"]["training.yaml"]).spec.tokenizer.vocab_sizes
    [volume] = [each for each in job["spec"]["template"]["spec"]["volumes"] if each["name"] == "training"]
    assert volume["configMap"]["name"] == settings["metadata"]["name"]


def test_jaxformer_layout_equals_the_serial_script(tmp_path: Path) -> None:
    write_texts(tmp_path)
    fields = ["--source", "data/*.jsonl.zst", "--output", "out", "--set", "output.shards.tokens=100"]
    tokjob(tmp_path, "run", str(EXAMPLES / "jaxformer.yaml"), *fields)
    write_jaxformer(tmp_path / "expected", read_texts(), shard_tokens=100, test_shards=350)
    assert {"test/test_0349.npy", "train/train_0000.npy"} <= shard_files(tmp_path / "out")
    assert difference(tmp_path / "out", tmp_path / "expected") is None


def test_nanogpt_layout_equals_the_serial_script(tmp_path: Path) -> None:
    write_texts(tmp_path)
    fields = ["--source", "data/*.jsonl.zst", "--output", "out", "--set", "output.shards.tokens=10000"]
    tokjob(tmp_path, "run", str(EXAMPLES / "nanogpt.yaml"), *fields)
    write_nanogpt(tmp_path / "expected", read_texts(), shard_tokens=10_000)
    assert {"edufineweb_val_000000.npy", "edufineweb_train_000001.npy"} <= shard_files(tmp_path / "out")
    assert difference(tmp_path / "out", tmp_path / "expected") is None


def expected_shards(folder: Path, name: str, **options: Any) -> dict[str, list[np.ndarray]]:
    """The shards of each split by the serial way, of two splits by the texts' hash."""
    write_by_hash(folder, read_texts(), name=name, position="After", **options)
    return {split.name: [np.load(path) for path in sorted(split.iterdir())] for split in folder.iterdir()}


def test_nanogpt_reads_the_files_without_header_as_one(tmp_path: Path) -> None:
    """The commands of the comment make what nanoGPT's own preparation makes."""
    write_texts(tmp_path)
    manifest = EXAMPLES / "nanogpt-raw.yaml"
    fields = ["--set", "output.shards.tokens=3000", "--set", "output.splits=[{name: val, share: 5%}, {name: train}]"]
    tokjob(tmp_path, "run", str(manifest), *fields)
    lines = [line.removeprefix("#   ") for line in manifest.read_text().splitlines() if line.startswith("#   ")]
    commands = [line for line in lines if line.startswith(("mkdir", "for"))]
    assert len(commands) == 2
    subprocess.run(
        ["bash", "-ec", "\n".join(commands)], cwd=tmp_path, check=True, env=os.environ | {"OUT": "out/nanogpt-raw"}
    )
    shares = {"val": Fraction(5, 100), "train": Fraction(95, 100)}
    expected = expected_shards(tmp_path / "expected", "gpt2", dtype=np.uint16, shard_tokens=3000, shares=shares)
    assert len(expected["train"]) > 2
    for split, shards in expected.items():
        tokens = np.memmap(tmp_path / f"data/corpus/{split}.bin", dtype=np.uint16, mode="r")
        assert np.array_equal(tokens, np.concatenate(shards))


def test_llmc_shards_hold_the_tokens_of_the_serial_script(tmp_path: Path) -> None:
    write_texts(tmp_path)
    tokjob(tmp_path, "run", str(EXAMPLES / "llmc.yaml"), "--set", "output.shards.tokens=10000")
    write_nanogpt(tmp_path / "expected", read_texts(), shard_tokens=10_000)
    expected = sorted((tmp_path / "expected").iterdir(), key=lambda path: path.name[-10:])
    found = sorted((tmp_path / "out/llmc").glob("*.bin"), key=lambda path: path.name[-10:])
    assert [path.stem.removeprefix("fineweb") for path in found] == [
        path.stem.removeprefix("edufineweb") for path in expected
    ]
    assert len(found) > 2
    for path, other in zip(found, expected, strict=True):
        assert np.array_equal(read_llmc(path), np.load(other))


def test_megatron_shards_are_given_by_their_prefixes(tmp_path: Path) -> None:
    """The function of the comment finds each shard; its entries are documents that end with the delimiter."""
    write_texts(tmp_path)
    manifest = EXAMPLES / "megatron.yaml"
    fields = ["--set", "output.shards.tokens=4000", "--set", "output.splits=[{name: valid, share: 5%}, {name: train}]"]
    tokjob(tmp_path, "run", str(manifest), *fields)
    [function] = [line.removeprefix("#   ") for line in manifest.read_text().splitlines() if "prefixes() {" in line]
    shares = {"valid": Fraction(5, 100), "train": Fraction(95, 100)}
    expected = expected_shards(tmp_path / "expected", "o200k_base", dtype=np.uint32, shard_tokens=4000, shares=shares)
    assert len(expected["train"]) > 2
    for split, shards in expected.items():
        script = f"OUT=out/megatron; {function}; prefixes {split}"
        prefixes = subprocess.run(
            ["bash", "-ec", script], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.split()
        for prefix, shard in zip(prefixes, shards, strict=True):
            entries = read_megatron(tmp_path / prefix)
            assert np.array_equal(np.concatenate(entries), shard)
            assert all(entry[-1] == encoding("o200k_base").eot_token for entry in entries[:-1])


def test_a_blend_of_two_groups_is_what_megatron_takes(tmp_path: Path) -> None:
    for group in ("web", "code"):
        records = [{"text": f"{group}: {text}"} for text in TEXTS]
        write_jsonl(tmp_path / "data" / group / "0.jsonl.zst", records)
    manifest = EXAMPLES / "megatron-groups.yaml"
    tokjob(tmp_path, "run", str(manifest), "--set", "output.shards.tokens=4000")
    commands = re.findall(r"^#   tokjob (blend .*) > (.*)\.txt", manifest.read_text(), re.MULTILINE)
    assert [split for _, split in commands] == ["train", "valid"]
    decode = encoding("o200k_base").decode
    for command, split in commands:
        weights = {"web": 0.0, "code": 0.0}
        for line in tokjob(tmp_path, *command.split()).splitlines():
            weight, prefix = line.split(" ")
            group = Path(prefix).parent.name
            weights[group] += float(weight)
            text = decode(np.concatenate(read_megatron(Path(prefix))).tolist())
            assert text.count(f"{group}: ") > 0
            assert text.count("web: ") * text.count("code: ") == 0
        if split == "train":
            assert weights == {"web": pytest.approx(0.7), "code": pytest.approx(0.3)}


def test_shuffled_shards_hold_both_groups_in_every_format(tmp_path: Path) -> None:
    for group in ("web", "code"):
        records = [{"text": f"{group} {number}: {text}"} for number in range(20) for text in TEXTS]
        write_jsonl(tmp_path / "data" / group / "0.jsonl.zst", records)
    manifest = EXAMPLES / "shuffled-documents.yaml"
    tokjob(tmp_path, "run", str(manifest), "--set", "output.shards.tokens=20000")
    out = tmp_path / "out/shuffled"
    shards = [np.load(path).tolist() for path in sorted((out / "npy").glob("train_*.npy"))]
    assert len(shards) > 2
    for number, tokens in enumerate(shards):
        text = encoding("gpt2").decode(tokens)
        shares = text.count("web ") / max(1, text.count("code "))
        assert 1 < shares < 4  # half of the code is left out
        prefix = out / "megatron" / f"train_{number:06d}"
        assert np.concatenate(read_megatron(prefix)).tolist() == tokens
        assert np.fromfile(out / "llmc" / f"train_{number:06d}.bin", "<u2")[512:].tolist() == tokens


def test_packed_rows_cut_no_document_that_fits(tmp_path: Path) -> None:
    records = [{"text": f"{number}: {text}"} for number in range(8) for text in TEXTS]
    write_jsonl(tmp_path / "data/0.jsonl.zst", records)
    tokjob(tmp_path, "run", str(EXAMPLES / "packed-rows.yaml"), "--set", "output.shards.sequences=3")
    pieces: dict[tuple[int, int], int] = {}
    text: dict[tuple[int, int], list[int]] = {}
    for split in ("val", "train"):
        for path in sorted((tmp_path / "out/packed" / split).glob("*.npy")):
            rows, parts = np.load(path), np.load(tmp_path / "out/packed/parts" / split / path.name)
            assert rows.shape == (parts["row"][-1] + 1, 8193)
            assert np.bincount(parts["row"]).max() <= 64
            for part in parts:
                place = (int(part["file"]), int(part["position"]))
                pieces[place] = pieces.get(place, 0) + 1
                text[place] = rows[part["row"], part["start"] : part["start"] + part["length"]].tolist()
    assert set(pieces.values()) == {1}
    assert sorted(encoding("gpt2").decode(tokens[1:]) for tokens in text.values()) == sorted(
        record["text"] for record in records
    )


def test_tars_hold_the_contexts_of_tokshuf_in_another_order(tmp_path: Path) -> None:
    write_texts(tmp_path)
    manifest = EXAMPLES / "tokshuf.yaml"
    assert "shards: {sequences: 8192}" in manifest.read_text()
    tokjob(tmp_path, "run", str(manifest), "--set", "output.shards.sequences=2")
    lines = [json.loads(line) for line in (tmp_path / "out/tokshuf/train/manifest.jsonl").read_text().splitlines()]
    assert [line["shard"] for line in lines] == [f"shard_{number:08d}" for number in range(len(lines))]
    tars = [list(read_tar(tmp_path / f"out/tokshuf/train/{line['shard']}.tar").values()) for line in lines]
    assert [line["num_sequences"] for line in lines] == [len(tar) for tar in tars]
    assert {len(tar) for tar in tars[:-1]} == {2}
    expected = []
    for number in range(3):
        tokens = delimited("gpt2", TEXTS[number::3], "After")
        tokens += [50257] * (-len(tokens) % 2049)
        expected += [tokens[at : at + 2049] for at in range(0, len(tokens), 2049)]
    found = [row for tar in tars for row in tar]
    assert sorted(found) == sorted(expected)
    assert found != expected


def test_text_with_separator_puts_the_delimiter_after_each_piece(tmp_path: Path) -> None:
    (tmp_path / "stories").mkdir()
    (tmp_path / "stories" / "a.txt").write_text("One.\n<|endoftext|>\nTwo.\n\nThree.\n<|endoftext|>\n")
    tokjob(tmp_path, "run", str(EXAMPLES / "text-with-separator.yaml"))
    expected = delimited("gpt2", ["One.\n", "Two.\n\nThree.\n"], "After")
    assert np.load(tmp_path / "out/stories/train/train_000000.npy").tolist() == expected


def test_hash_splits_keep_equal_texts_together(tmp_path: Path) -> None:
    texts = [f"Text number {number // 2}." for number in range(4000)]  # each twice
    write_jsonl(tmp_path / "data" / "deep" / "down" / "a.jsonl.zst", [{"text": text} for text in texts])
    tokjob(tmp_path, "run", str(EXAMPLES / "hash-splits.yaml"))
    dataset = open_dataset(tmp_path / "out" / "hash-splits")
    decode = encoding("o200k_base").decode
    held = {name: decode(split.tokens(0, len(split)).tolist()) for name, split in dataset.items()}
    found = {name: re.findall(r"Text number \d+\.", text) for name, text in held.items()}
    assert sum(map(len, found.values())) == len(texts)
    assert 0 < len(found["test"]) < 100
    for name, other in (("test", "train"), ("validation", "train"), ("test", "validation")):
        assert not set(found[name]) & set(found[other])


def test_quarantine_lists_what_it_leaves_out(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [{"doc": {"text": text, "url": f"u{i}"}} for i, text in enumerate(TEXTS[:100])]
    records[3] = {"doc": {"url": "u3"}}
    records[7] = {"doc": {"text": "x" * (1 << 20) + "y", "url": "u7"}}
    whole = write_jsonl(tmp_path / "crawl" / "a.jsonl.gz", records)
    (whole.parent / "b.jsonl.gz").write_bytes(whole.read_bytes()[:-100])
    tokjob(tmp_path, "run", str(EXAMPLES / "quarantine.yaml"), "--maxQuarantined", "5")  # one holds 97 % of the bytes
    conservation = read_index(tmp_path / "out" / "crawl")["conservation"]
    assert conservation == {
        "read": 100,
        "written": 98,
        "quarantined": {"DocumentTooLarge": 1, "MissingText": 1},
        "files": {"CorruptFile": 1, "Read": 1},
    }


def test_tokenizer_file_is_used_with_its_delimiter(tmp_path: Path) -> None:
    write_texts(tmp_path)
    (tmp_path / "models").mkdir()
    write_json(tmp_path / "models" / "tokenizer.json", train_byte_level([{"content": "<|endoftext|>"}]))
    tokjob(tmp_path, "run", str(EXAMPLES / "tokenizer-file.yaml"))
    dataset = open_dataset(tmp_path / "out" / "tokenizer-file")
    tokens = dataset["train"].tokens(0, len(dataset["train"]))
    assert dataset.delimiter_id == 600
    assert int((tokens == 600).sum()) == len(TEXTS)
    assert tokens[-1] == 600


def test_gitops_rerun_makes_a_folder_a_token_and_finds_the_old_one(tmp_path: Path) -> None:
    write_texts(tmp_path)
    manifest = str(EXAMPLES / "gitops-rerun.yaml")
    fields = ["--source", "data/*.jsonl.zst", "--output", "out/corpus-{rerunToken}"]
    assert "done " in tokjob(tmp_path, "run", manifest, *fields)
    assert "done " in tokjob(tmp_path, "run", manifest, *fields, "--rerunToken", "2026-12")
    (tmp_path / "data" / "part-0.jsonl.zst").unlink()  # what is complete is not looked for again
    assert "complete " in tokjob(tmp_path, "run", manifest, *fields)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["corpus-2026-11", "corpus-2026-12"]


def test_a_corpus_is_the_same_each_time_it_is_built(tmp_path: Path) -> None:
    for name in ("first", "second"):
        build_corpus.build_corpus(tmp_path / name, 0.5)
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("first", "second"))
    assert first == second
    assert {Path(name).suffix for name in first} == {".parquet", ".zst"}


def test_this_python_carries_enough_text() -> None:
    wanted = 20_000_000
    found = sum(build_corpus.size_of(document) for document in build_corpus.take(build_corpus.read_sources(), wanted))
    assert found >= wanted


def test_make_run_verifies_and_prints_lines_that_load_the_shards(local_run: tuple[Path, str]) -> None:
    out, printed = local_run
    assert "proven" in printed
    snippet = printed.partition("Load them in training:\n")[2]
    assert len(snippet.strip().splitlines()) == 5
    names: dict[str, Any] = {}
    exec(snippet, names)
    assert np.array_equal(names["x"][1:], names["y"][:-1])
    assert names["shard"].shape == (1_000_000,) or len(names["train"]) < 1_000_000
    assert set(open_dataset(out / "tokens")) == {"test", "train"}


def test_make_run_again_does_nothing_twice(local_run: tuple[Path, str]) -> None:
    out, _ = local_run
    printed = run([sys.executable, str(EXAMPLES / "run_local.py"), "--out", str(out)], CHECKOUT)
    assert "there already" in printed
    assert "nothing to do" in printed


def test_the_training_loop_learns(local_run: tuple[Path, str]) -> None:
    out, _ = local_run
    losses = train_loop.train(str(out / "tokens"), steps=20)
    assert np.mean(losses[-5:]) < 0.8 * losses[0]
    assert losses == train_loop.train(str(out / "tokens"), steps=20)


def test_windows_follow_each_other_and_survive_a_trip_to_a_loader_process(local_run: tuple[Path, str]) -> None:
    out, _ = local_run
    dataset = pickle.loads(pickle.dumps(open_dataset(out / "tokens")))
    batch = next(train_loop.random_windows(dataset["train"], window=32, batch=4))
    assert batch.x.shape == batch.y.shape == (4, 32)
    assert np.array_equal(batch.x[:, 1:], batch.y[:, :-1])
    with pytest.raises(ValueError, match="a window takes"):
        next(train_loop.random_windows(dataset["test"], window=len(dataset["test"])))


def test_what_manifests_say_to_try_them_works_one_after_the_other(tmp_path: Path) -> None:
    for file in ("examples", "README.md"):
        (tmp_path / file).symlink_to(CHECKOUT / file)
    for name in ("quarantine", "text-with-separator", "tokenizer-file"):
        try_it(name, tmp_path)


def try_it(name: str, folder: Path) -> None:
    """Do in `folder` what the comment of a manifest says, then run it."""
    comment = (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8").partition("apiVersion:")[0]
    lines = comment.partition("To try it")[2].splitlines()[1:]
    commands = "\n".join(line.removeprefix("#   ") for line in lines if line.startswith("#   "))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["bash", "-ec", commands], cwd=folder, check=True, env=os.environ | {"PATH": path})
    assert "done " in tokjob(folder, "run", f"examples/{name}.yaml")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["build_corpus.py", "new", "--megabytes", "0"], "--megabytes 0: give a number above 0"),
        (["build_corpus.py", "new", "--megabytes", "-1"], "--megabytes -1: give a number above 0"),
        (["build_corpus.py", "file"], "file is a file: give a folder"),
        (["build_corpus.py", "."], ". is there and holds no corpus of this script: give another folder"),
        (["train_loop.py", "nowhere"], "NotADataset: "),
        (["train_loop.py", "nowhere", "--steps", "0"], "--steps 0: give a number above 0"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_a_script_says_what_is_wrong_without_a_traceback(arguments: list[str], words: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    script = [sys.executable, str(EXAMPLES / arguments[0]), *arguments[1:]]
    told = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (told.returncode, "Traceback" in told.stderr) == (2, False), told.stderr
    assert words in told.stderr
    assert not (tmp_path / "new").exists()


def test_the_training_script_prints_a_falling_loss(local_run: tuple[Path, str]) -> None:
    out, _ = local_run
    printed = run([sys.executable, str(EXAMPLES / "train_loop.py"), str(out / "tokens"), "--steps", "10"], CHECKOUT)
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", printed)]
    assert losses[-1] < losses[0]
