"""Decides what is at the output of a training, and chooses its plan: the one that is there, or a new one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256

from tokenization_worker.api.keys import data_key, plan_id
from tokenization_worker.api.resolve import RunLimits
from tokenization_worker.api.training.resolve import TrainingData
from tokenization_worker.errors import ChangedError
from tokenization_worker.events import Warned, Watcher
from tokenization_worker.messages.commands import tokjob
from tokenization_worker.messages.counts import counted_sizes
from tokenization_worker.output import layout
from tokenization_worker.output.plan_file import Plan, read_any_plan, write_plan
from tokenization_worker.output.recovery import advise_training
from tokenization_worker.output.training_claim import create_claim, find_claim
from tokenization_worker.output.training_index import TrainingIndex, read_training_index
from tokenization_worker.pipelines.train.count_task import require_same_library
from tokenization_worker.planning.groups.files import list_files
from tokenization_worker.planning.head_check import is_corrupt, sample_heads, warn_of_empty_texts
from tokenization_worker.planning.listing_check import (
    refuse_overlap,
    warn_of_closed_folders,
    warn_of_empty_files,
    warn_of_links,
)
from tokenization_worker.planning.make_plan import cut_source
from tokenization_worker.planning.sampling import foresee
from tokenization_worker.planning.source_check import find_strange
from tokenization_worker.run.observe import refuse_nested_output
from tokenization_worker.run.output_state import describe_touched
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.storage.source_file import SourceFile, first_file_difference
from tokenization_worker.storage.sources import pins_of


@dataclass(frozen=True, slots=True)
class PlannedTraining:
    """The plan that counts. `adopted`: an earlier or concurrent start had written it."""

    plan: Plan
    adopted: bool


def find_finished(store: Store, data: TrainingData) -> TrainingIndex | None:
    """The index of this very training; None where none is finished. Raises `ChangedError` for another one."""
    index = read_training_index(store)
    if index is None or index["run"]["trainingKey"] == data.training_key:
        return index
    words = _difference(index["data"], index["run"]["asked"], data)
    raise ChangedError(
        "OutputConflict",
        f"{store.uri} holds another finished training: {words}",
        next_step="write to another output.uri; or, if you do not want the old tokenizer, remove the folder yourself",
    )


def require_files(store: Store, index: TrainingIndex) -> None:
    """Raise unless the files of a finished training are as its index says."""
    for name, facts in index["files"].items():
        try:
            found = sha256(store.read(name)).hexdigest()
        except NotFound:
            found = "none: it is gone"
        if found != facts["sha256"]:
            raise ChangedError(
                "TokenizerChanged",
                f"{store.uri}/{name}: expected SHA-256 {facts['sha256']}, found {found}",
                next_step=advise_training(store),
            )


def claim_output(store: Store, data: TrainingData) -> None:
    """Raise where another training from the same counts has begun to write its tokenizers, or a file of another program
    is in the way."""
    if find_claim(store) is None:
        _refuse_files(store, data)
    found = create_claim(store, data.training_key, {size: data.folder(size) for size in data.vocab_sizes})
    if found["trainingKey"] != data.training_key:
        raise ChangedError(
            "OutputConflict",
            f"{store.uri}: another training from these counts, of {counted_sizes(found['vocabSizes'])}, writes there, "
            "or was stopped while it did",
            next_step="train at another output.uri; or, if you do not want the other one and it is not finished: "
            f"{tokjob('clean', store.uri)}",
        )


def plan_training(
    store: Store, data: TrainingData, limits: RunLimits, count_slots: Callable[[], int], library: str, watch: Watcher
) -> PlannedTraining:
    """The plan of the unfinished training that is there, or a new one, written.

    `library`: which cuts pieces, with its version. Raises `ChangedError` where something else is there, or source or
    library changed since, and `SpecError` for a source that cannot be read.
    """
    plan = read_any_plan(store)
    if plan is not None:
        return PlannedTraining(_require_same(store, plan, data, library, watch), adopted=True)
    _refuse_place(store, data)
    files = list_files(data)
    refuse_overlap(data.output_uri, [*layout.BESIDE_INDEX, *_paths(data), layout.INDEX], data.source.uris, files)
    _check_source(data, limits, files, watch)
    mine = _make_plan(data, limits, files, count_slots(), library)
    written = write_plan(store, mine)
    if written is mine:
        return PlannedTraining(mine, adopted=False)
    return PlannedTraining(_require_same(store, written, data, library, watch), adopted=True)


def asked_of(data: TrainingData) -> dict[str, object]:
    """The fields of a training as messages compare them."""
    return {
        "source.uris": list(data.source.uris),
        "source.format": data.source.format.value,
        "source.textField": data.source.text_field,
        "source.documentSeparator": data.source.document_separator,
        "source.groups": [[group.name, list(group.uris), str(group.share)] for group in data.source.groups],
        "documents.maxBytes": data.max_document_bytes,
        "holdout": str(data.holdout),
        "tokenizer.pattern": data.pattern.value if data.regex is None else None,
        "tokenizer.regex": data.regex,
        "tokenizer.specialTokens": list(data.special_tokens),
        "tokenizer.algorithm": data.algorithm.value,
        "tokenizer.vocabSize": data.asked_sizes,
        "tokenizer.layout": data.layout.value,
        "tokenizer.ties": data.ties.value,
    }


def _make_plan(data: TrainingData, limits: RunLimits, files: tuple[SourceFile, ...], slots: int, library: str) -> Plan:
    cut, kinds = cut_source(data, files, limits.range_bytes, slots)
    canonical = {**data.canonical(), "library": library}
    key = data_key(canonical, ((file.uri, file.size, file.version, file.group) for file in files))
    return Plan(
        plan_id=plan_id(key, cut.digest()),
        data_key=key,
        run_key=data.counting_key,
        data=canonical,
        files=files,
        kinds=kinds,
        cut=cut,
        asked=asked_of(data),
    )


def _require_same(store: Store, plan: Plan, data: TrainingData, library: str, watch: Watcher) -> Plan:
    """The plan, with its files as they are now; raises where it is of something else, or the source changed."""
    if not plan.is_of_training:
        raise ChangedError(
            "OutputConflict",
            f"{store.uri} holds an unfinished run of a job",
            next_step=f"write to another output.uri; or, if you do not want the run: {tokjob('clean', store.uri)}",
        )
    if plan.run_key != data.counting_key:
        raise ChangedError(
            "OutputConflict",
            f"{store.uri} holds another unfinished training: {_difference(plan.data, plan.asked, data)}",
            next_step="put the field back, or write to another output.uri; or, if you do not want the old training: "
            f"{tokjob('clean', store.uri)}",
        )
    require_same_library(plan.data["library"], library)
    files = list_files(data, pins_of(plan.files))
    difference = first_file_difference(plan.files, files)
    if difference is not None:
        raise ChangedError(
            "SourceChanged",
            f"the source changed since the training was planned: {difference}",
            next_step="put the planned files back and start the same command again; or train at another output.uri",
        )
    for warning in describe_touched(plan, files):
        watch(Warned(warning))
    return plan.as_listed(files)


def _difference(was: dict[str, object], was_asked: dict[str, object], data: TrainingData) -> str:
    """The fields that are not as they were, in words."""
    asked = {name: value for name, value in asked_of(data).items() if was_asked.get(name) != value}
    if asked:
        return "; ".join(
            f"{name}: {_in_words(name, value)} is asked for, it was made with {_in_words(name, was_asked.get(name))}"
            for name, value in asked.items()
        )
    return (
        "other data"
        if {**was, "library": ""} != {**data.canonical(), "library": ""}
        else "an older version of this program made it"
    )


def _in_words(name: str, value: object) -> str:
    return f"{float(Fraction(value) * 100):g}%" if name == "holdout" and isinstance(value, str) else repr(value)


def _paths(data: TrainingData) -> list[str]:
    """The files of all tokenizers."""
    return layout.export_paths(map(data.folder, data.vocab_sizes))


def _refuse_place(store: Store, data: TrainingData) -> None:
    """Raise where no new training may begin: inside another output, or over a file that is no training's."""
    refuse_nested_output(store)
    _refuse_files(store, data, *layout.BESIDE_INDEX)


def _refuse_files(store: Store, data: TrainingData, *more: str) -> None:
    """Raise where a file stands at the place of one of a tokenizer, or of `more`."""
    for path in (*more, *_paths(data)):
        if store.stat(path) is not None:
            raise ChangedError(
                "OutputConflict",
                f"{store.uri}/{path} is there, but no training of tokjob",
                next_step="move it away, or write to another output.uri",
            )


def _check_source(data: TrainingData, limits: RunLimits, files: tuple[SourceFile, ...], watch: Watcher) -> None:
    """Raise what the heads of a few files, and the names of all, show to be wrong; warn of what may be."""
    warn_of_closed_folders(data.source.uris, data.output_uri, watch)
    warn_of_empty_files(files, data.source.format, watch)
    warn_of_links(files, watch)
    strange = find_strange(data.source.uris, data.source.format, files)
    if strange is not None:
        raise strange
    samples = sample_heads(data, limits, files, watch)
    warn_of_empty_texts(data, samples, watch)
    foresight = foresee(samples, len(files), limits, lambda file: is_corrupt(data, file))
    for warning in foresight.warnings:
        watch(Warned(warning))
    if foresight.error is not None:
        raise foresight.error
