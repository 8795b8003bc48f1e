"""Makes a job from arguments: a manifest, flags for its fields, or both.

Flags are made from the manifest's models, so every field has one (`--output.shards.tokens`), and a run that
began with flags can be written down as a file (`--print-manifest`). `--set FIELD=VALUE` is the same for
scripts. A flag outranks the file.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from tokenization_worker.api.job import OPERATOR_FIELDS, JobSpec, TokenizationJob
from tokenization_worker.api.manifest.keywords import SHORT, job_manifest, require_once, set_field, tokenizer_field
from tokenization_worker.api.manifest.load import COMMAND_LINE, load_manifest, validate_manifest
from tokenization_worker.api.manifest.manifest_file import MOST_BYTES, read_manifest_file
from tokenization_worker.api.manifest.yaml_text import parse_value, parse_yaml
from tokenization_worker.api.types.model import Block, SpecBlock
from tokenization_worker.api.types.walk import is_list_type, iter_fields, strip_annotation
from tokenization_worker.cli.parser import CommandParser
from tokenization_worker.cli.typed_text import read_text
from tokenization_worker.errors import SpecError
from tokenization_worker.messages.redact import is_secret_field

B = TypeVar("B", bound=Block)

_FIELD_PREFIX = "field:"
_HEAD_BYTES = 4096
_MOST_SHOWN = 80
_CURLY_QUOTES = "\u2018\u2019\u201a\u201c\u201d\u201e\u00ab"


_WRITE_ELSEWHERE = "write to another --output, or remove an unfinished run with tokjob clean"
_RESUMES = "every start continues where the last one stopped; leave it out"
_PROCESSES = (
    "--processes N says how many processes run on this machine (--workers.replicas: how many machines of a cluster)"
)
_SOURCE = "--source takes the files, folders and globs to tokenize"
_TOKENIZER = "--tokenizer takes a name (gpt2, hf:org/name) or a file (./tokenizer.json)"
_OUTPUT = "--output takes the folder (or gs:// address) that the dataset goes to"
_SHARDS = "--output.shards.tokens N says how many tokens a shard has"
_DISPLAY = "a run has one display; --json prints one JSON object a line instead"
_TEXT_FIELD = "--source.textField FIELD says which field or column holds the text"
_MANIFEST = "a manifest is given without a flag: tokjob run job.yaml"
_BOTH = (
    "; --tokenizer.delimiter.begin TOKEN and --tokenizer.delimiter.end OTHER together put one token before every "
    "document and another one after it"
)
_END = (
    "--tokenizer.delimiter.position After puts the delimiter, by default the tokenizer's end-of-text token, after "
    "every document" + _BOTH
)
_BEGIN = (
    "--tokenizer.delimiter.position Before (the default) puts the delimiter before every document, and "
    "--tokenizer.delimiter.token TOKEN says which special token that is" + _BOTH
)
_ADVICE = {
    **dict.fromkeys(("-i", "--in", "--input", "--inputs", "--input-file", "--input-files", "--input-path"), _SOURCE),
    **dict.fromkeys(("--input-dir", "--input_path", "--input_file", "--input_dir", "--input-folder"), _SOURCE),
    **dict.fromkeys(("--src", "-s", "--data", "--dataset", "--corpus", "--files", "--data-path", "--sources"), _SOURCE),
    **dict.fromkeys(("--model", "-m", "--model-name", "--encoding", "-t", "--vocab", "--vocab-file"), _TOKENIZER),
    **dict.fromkeys(("--tokenizer-name", "--tokenizer-path", "--tokenizer-model", "--tokenizer-type"), _TOKENIZER),
    **dict.fromkeys(("-o", "--out", "--outdir", "--out-dir", "--output-dir", "--output_dir", "--dest"), _OUTPUT),
    **dict.fromkeys(("--output-prefix", "--output-folder", "--save-path", "--destination"), _OUTPUT),
    **dict.fromkeys(("--output-path", "--output_path"), f"{_OUTPUT}; --output.path says how its shards are called"),
    **dict.fromkeys(("--shard-size", "--shard_size", "--shard-tokens", "--tokens-per-shard", "--chunk-size"), _SHARDS),
    **dict.fromkeys(("--append-eos", "--add-eos", "--append-eod", "--add-eod", "--eod", "--eos"), _END),
    **dict.fromkeys(("--append-bos", "--add-bos", "--prepend-bos", "--bos"), _BEGIN),
    **dict.fromkeys(("--verbose", "-v", "--debug", "--quiet", "-q", "--log-level"), _DISPLAY),
    **dict.fromkeys(("--text-key", "--text-column", "--json-keys", "--json-key", "--column", "--field"), _TEXT_FIELD),
    **dict.fromkeys(("--config", "-c", "-f", "--file", "--manifest"), _MANIFEST),
    **dict.fromkeys(
        ("--dry-run", "--dry_run", "--dryrun", "-n"), "tokjob plan shows what a run would do, and writes nothing"
    ),
    "--shuffle": "--output.shuffle.seed 0 shuffles all documents; without it they keep the order of the source",
    **dict.fromkeys(("--force", "--overwrite", "--overwrite-output"), _WRITE_ELSEWHERE),
    **dict.fromkeys(
        ("--workers", "--num-workers", "--num_workers", "--threads", "--jobs", "-j", "--num-proc"), _PROCESSES
    ),
    "--seed": "--output.shuffle.seed chooses the order of documents; nothing else is drawn at random",
    **dict.fromkeys(("--resume", "--continue"), _RESUMES),
}


class ManifestParser(CommandParser):
    """A parser for commands that take a manifest, or flags in its place. Usage is one line."""

    def __init__(self, prog: str, description: str, epilog: str | None = None) -> None:
        usage = f"{prog} [MANIFEST] [--FIELD VALUE ...] [OPTIONS]"
        super().__init__(prog, usage, description, epilog, allow_abbrev=False)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse does; then of the words after `--source` the one that is a manifest becomes that."""
        found, unknown = super().parse_known_args(args, namespace)
        self._refuse_lonely_percent(found, unknown)
        if unknown and not unknown[0].startswith("-"):
            self.error(
                f"found {unknown[0]!r} after the manifest {found.manifest!r}, expected one manifest at most; files to "
                "tokenize follow --source"
            )
        groups = found.source or []
        self._refuse_curly_quotes(found, [word for group in groups for word in group])
        manifests = [word for group in groups for word in group[1:] if _is_manifest(word)]
        if len(manifests) + (found.manifest is not None) > 1:
            named = " and ".join(([found.manifest] if found.manifest else []) + manifests)
            self.error(
                f"--source: {named} could each be the manifest; put the glob in quotes (--source '*.yaml'), or write "
                "--source before each file"
            )
        if manifests:
            found.manifest = manifests[0]
            groups = [[word for word in group if word != manifests[0]] for group in groups]
        found.source = [word for group in groups for word in group] or None
        return found, unknown

    def _refuse_lonely_percent(self, found: argparse.Namespace, unknown: Sequence[str]) -> None:
        """Raise for `2 %`, of which the shell makes two words."""
        if "%" in (found.manifest, *unknown[:1]):
            before = next((one for one, two in pairwise(self._typed) if two == "%"), "")
            number = before.rpartition("=")[2]
            self.error(f"found % after a blank: write {number}% without the blank")

    def _refuse_curly_quotes(self, found: argparse.Namespace, sources: Sequence[str]) -> None:
        """Raise for a value in quotes that no shell takes away: they would be part of a name."""
        given = [("", found.manifest), *(("--source ", word) for word in sources)]
        given += [("--tokenizer ", getattr(found, "tokenizer", None)), ("--output ", found.output)]
        for flag, value in given:
            if value and value[0] in _CURLY_QUOTES and not os.path.lexists(value):
                self.error(
                    f"{flag}{value}: {value[0]!r} is no quote for a shell, and would be part of the name; write ' or \""
                )


class JobParser(ManifestParser):
    """A parser for commands that take a job. `--help` leaves out what only a cluster needs."""

    help_flag = "--help-all"
    advice = _ADVICE

    def __init__(self, prog: str, description: str) -> None:
        epilog = f"flags for clusters (machines, Pods, retries, deadlines): {prog} {self.help_flag}"
        super().__init__(prog, description, epilog)
        self.hidden: list[tuple[argparse.Action, str]] = []
        self.add_argument(self.help_flag, action=_HelpAll, help="show every flag, also those for clusters, and stop")
        add_job_arguments(self)


class _HelpAll(argparse.Action):
    """Shows help with the flags that `--help` leaves out."""

    def __init__(self, option_strings: Sequence[str], dest: str, **more: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **more)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        assert isinstance(parser, JobParser)
        for action, text in parser.hidden:
            action.help = text
        parser.epilog = None
        parser.print_help()
        parser.exit()


def add_job_arguments(parser: JobParser) -> None:
    """The manifest and one flag for every field of it."""
    parser.add_argument("manifest", nargs="?", help="a TokenizationJob in YAML; - reads standard input")
    short = parser.add_argument_group("without a manifest (or to change one)")
    short.add_argument(
        "--source", action="append", nargs="+", metavar="URI", help="files, folders or globs; may be repeated"
    )
    short.add_argument(
        "--tokenizer",
        metavar="NAME|FILE",
        help="an encoding, a model name, hf:org/name on the Hugging Face Hub, or a tokenizer file",
    )
    short.add_argument("--output", metavar="URI", help="where the dataset goes")
    add_setting(short)
    fields = parser.add_argument_group("fields of the manifest (lists and numbers as in YAML)")
    cluster = parser.add_argument_group("fields for clusters: a laptop ignores them")
    of_operator = {JobSpec.model_fields[name].alias for name in OPERATOR_FIELDS}
    for path, summary in flags_of(JobSpec):
        is_hidden = path.partition(".")[0] in of_operator
        text = summary.replace("%", "%%")
        shown = argparse.SUPPRESS if is_hidden else text
        group = cluster if is_hidden else fields
        action = group.add_argument(f"--{path}", dest=_FIELD_PREFIX + path, metavar="VALUE", help=shown)
        if is_hidden:
            parser.hidden.append((action, text))


def _is_manifest(word: str) -> bool:
    """Whether a word after the first source is a manifest rather than one more source: by its name, or its content."""
    path = Path(word)
    if word == "-" or path.suffix in (".yaml", ".yml"):
        return True
    if "://" in word or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return b"apiVersion" in file.read(_HEAD_BYTES)
    except OSError:
        return False


def add_setting(group: argparse._ArgumentGroup) -> None:
    """The flags that change a manifest, or show it."""
    group.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="set any field of spec")
    group.add_argument(
        "--print-manifest", action="store_true", help="print the manifest that the command line stands for, and stop"
    )


def add_fields(group: argparse._ArgumentGroup, spec: type[SpecBlock]) -> None:
    """One flag for every field of `spec` that holds a value."""
    for path, summary in flags_of(spec):
        group.add_argument(f"--{path}", dest=_FIELD_PREFIX + path, metavar="VALUE", help=summary.replace("%", "%%"))


def flags_of(spec: type[SpecBlock]) -> Iterator[tuple[str, str]]:
    """(path, first sentence) of every field of `spec` that holds a value; items of lists have no flag."""
    for field in iter_fields(spec):
        if not field.in_list and (field.block is None or is_list_type(field.info.annotation)):
            yield field.path, (field.info.description or "").split(". ")[0].rstrip(".")


def job_from_arguments(arguments: argparse.Namespace) -> TokenizationJob:
    """The job that the arguments stand for; raises `SpecError`."""
    nothing = SpecError(
        "SpecInvalid",
        "no job given",
        next_step="name a manifest (tokjob run job.yaml), or give --source, --tokenizer and --output",
    )
    changes = changes_of(arguments, JobSpec, SHORT)
    return read_arguments(TokenizationJob, arguments.manifest, job_manifest("laptop", {}), changes, SHORT, nothing)


def read_arguments(
    model: type[B],
    path: str | None,
    empty: dict[str, Any],
    changes: dict[str, Any],
    short: Mapping[str, str],
    nothing: SpecError,
) -> B:
    """The manifest at `path`, or the `empty` one where that is None, with `changes`; raises `nothing` for neither."""
    if path is None and not changes:
        raise nothing
    if path is None:
        require_given(changes, short)
    if not changes and path is not None and path != "-":
        return load_manifest(model, Path(path))
    return validate_manifest(model, merge_changes(path, empty, changes), origin=path or COMMAND_LINE)


def require_given(changes: dict[str, Any], short: Mapping[str, str]) -> None:
    """Raise unless the blocks of all `short` flags are given: there is no manifest to have them."""
    given = {path.partition(".")[0] for path in changes}
    missing = [f"--{flag}" for flag, path in short.items() if path.partition(".")[0] not in given]
    if missing:
        raise SpecError(
            "SpecInvalid",
            f"{COMMAND_LINE}: {' and '.join(missing)} missing; found {', '.join(sorted(given))} and no manifest",
            next_step=f"add {' ... '.join(missing)} ..., or name a manifest that has the field",
        )


def print_manifest(job: SpecBlock) -> str:
    """The manifest as YAML, without what is left to defaults."""
    manifest = job.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    return yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Writes characters that YAML takes for line breaks as escapes: parsers differ on them within quotes."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    has_breaks = any(character in text for character in "\x85\u2028\u2029")
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if has_breaks else None)


_Dumper.add_representer(str, _represent_text)


def changes_of(arguments: argparse.Namespace, spec: type[SpecBlock], short: Mapping[str, str]) -> dict[str, Any]:
    """What the flags set, by the paths of fields of `spec`; `short`: the flags with names of their own."""
    changes: dict[str, Any] = {}
    given: list[tuple[str, str]] = []
    for flag, path in short.items():
        value = getattr(arguments, flag.replace("-", "_"))
        if value is not None:
            field = tokenizer_field(value) if flag == "tokenizer" else path
            changes[field] = value
            given.append((f"--{flag}", field))
    for name, value in vars(arguments).items():
        if name.startswith(_FIELD_PREFIX) and value is not None:
            path = name.removeprefix(_FIELD_PREFIX)
            changes[path] = _value(spec, path, value, f"--{path} ")
            given.append((f"--{path}", path))
    for assignment in arguments.set:
        path, equals, value = assignment.partition("=")
        if not equals:
            shown = "env" if is_secret_field(path.removeprefix("spec.")) else assignment
            raise SpecError(
                "SpecInvalid",
                f"--set {shown}: expected FIELD=VALUE, such as rangeBytes=64Mi",
                next_step="write = between the field's path and its value",
            )
        path = path.strip().removeprefix("spec.")
        changes[path] = _value(spec, path, value, f"--set {path}=")
        given.append((f"--set {path}", path))
    require_once(given, COMMAND_LINE)
    return changes


def _value(spec: type[SpecBlock], path: str, typed: str, flag: str) -> Any:
    """A flag's value: text where the field holds text (`{split}` is no mapping there), else YAML; null is absent."""
    if path in _text_fields(spec):
        return read_text(typed, flag=flag, is_expression=path in ("tokenizer.pattern", "tokenizer.regex"))
    shown = typed if len(typed) <= _MOST_SHOWN else f"{typed[:_MOST_SHOWN]}..."
    return parse_value(typed, origin=flag.rstrip(" =") if is_secret_field(path) else f"{flag}{shown}")


@cache
def _text_fields(spec: type[SpecBlock]) -> frozenset[str]:
    return frozenset(field.path for field in iter_fields(spec) if strip_annotation(field.info.annotation) is str)


def merge_changes(path: str | None, empty: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The manifest at `path`, or the `empty` one where that is None, with the changes."""
    manifest = empty if path is None else _load(path)
    spec = manifest.setdefault("spec", {})
    for field, value in changes.items():
        set_field(spec, field, value, origin=path or COMMAND_LINE)
    return manifest


def _load(manifest: str) -> dict[str, Any]:
    if manifest == "-":
        return parse_yaml(sys.stdin.read(MOST_BYTES + 1), origin="standard input")
    return parse_yaml(read_manifest_file(Path(manifest)), origin=manifest)
