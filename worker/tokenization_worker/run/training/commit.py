"""Ends a training: claims the output, writes the files of each size, and the index last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version

from tokenization_worker.api.training.manifest import TrainingAlgorithm
from tokenization_worker.api.training.resolve import TrainingData
from tokenization_worker.events import Watcher
from tokenization_worker.output import layout
from tokenization_worker.output.index import TRAINING_KIND
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.output.training_index import (
    FORMAT_VERSION,
    CountsFacts,
    DocumentFacts,
    FileFacts,
    TrainedTokenizer,
    TrainingIndex,
    TrainingRun,
    write_training_index,
)
from tokenization_worker.pipelines.train.holdout import HeldOut, read_held_out
from tokenization_worker.run.training.export import Exported, place_file, write_tokenizer
from tokenization_worker.run.training.make import Model
from tokenization_worker.run.training.model_export import write_model
from tokenization_worker.run.training.plan import asked_of, claim_output
from tokenization_worker.run.training.report import report_on
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.training.patterns import pattern_text
from tokenization_worker.training.vocabulary import Vocabulary


def commit_training(
    store: Store,
    data: TrainingData,
    plan: Plan,
    documents: DocumentFacts,
    counts: CountsFacts,
    vocabularies: Mapping[int, Vocabulary | Model],
    watch: Watcher,
    should_stop: Callable[[], bool],
) -> TrainingIndex:
    """Write the tokenizers of all sizes, the report, and the index."""
    claim_output(store, data)
    held_out = _read_held_out(store)
    texts = [each.text for each in held_out]
    made: list[Exported] = []
    tokenizers: list[TrainedTokenizer] = []
    files: dict[str, FileFacts] = {}
    for size, vocabulary in vocabularies.items():
        exported = (
            write_tokenizer(store, data, vocabulary, texts, data.folder(size), watch)
            if isinstance(vocabulary, Vocabulary)
            else write_model(store, data, vocabulary, texts, data.folder(size))
        )
        made.append(exported)
        files.update(exported.files)
        tokenizers.append(
            TrainedTokenizer(
                file=exported.file,
                vocabularySize=size,
                fingerprint=exported.tokenizer.fingerprint,
                delimiter=data.special_tokens[0],
                pattern=pattern_text(data.pattern, data.regex),
                specialTokens={token: exported.tokenizer.special_tokens[token] for token in data.special_tokens},
            )
        )
    if held_out:
        report = report_on(made, held_out, data, documents["textBytes"], watch, should_stop)
        files[layout.REPORT] = place_file(store, layout.REPORT, report)
    index = TrainingIndex(
        formatVersion=FORMAT_VERSION,
        kind=TRAINING_KIND,
        dataKey=plan.data_key,
        data=plan.data,
        tokenizers=tokenizers,
        counts=counts,
        documents=documents,
        files=files,
        run=TrainingRun(
            countingKey=data.counting_key,
            trainingKey=data.training_key,
            planId=plan.plan_id,
            asked=asked_of(data),
            libraries={name: version(name) for name in _libraries(data)},
        ),
    )
    return write_training_index(store, index)


def _libraries(data: TrainingData) -> list[str]:
    """What a training is made with."""
    is_bpe = data.algorithm is TrainingAlgorithm.BPE
    return ["numba", "numpy", "tokenizers", "tiktoken" if is_bpe else "sentencepiece"]


def _read_held_out(store: Store) -> list[HeldOut]:
    """The documents that are kept of the holdout; none where nothing is held out."""
    try:
        return list(read_held_out(store.read(layout.HOLDOUT)))
    except NotFound:
        return []
