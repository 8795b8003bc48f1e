"""Ends a training: claims the output, writes the files of each size, and the index last."""

from __future__ import annotations

from importlib.metadata import version

from tokenization_worker.api.training.resolve import TrainingData
from tokenization_worker.events import Watcher
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
from tokenization_worker.run.training.export import write_tokenizer
from tokenization_worker.run.training.plan import asked_of, claim_output
from tokenization_worker.storage.base import Store
from tokenization_worker.training.patterns import pattern_text
from tokenization_worker.training.vocabulary import Vocabulary


def commit_training(
    store: Store,
    data: TrainingData,
    plan: Plan,
    documents: DocumentFacts,
    counts: CountsFacts,
    vocabulary: Vocabulary,
    watch: Watcher,
) -> TrainingIndex:
    """Write the tokenizers, each with the first merges of `vocabulary`, and the index."""
    claim_output(store, data)
    tokenizers: list[TrainedTokenizer] = []
    files: dict[str, FileFacts] = {}
    for size in data.vocab_sizes:
        cut = vocabulary.cut(data.n_merges(size))
        exported = write_tokenizer(store, data, cut, data.folder(size), watch)
        files.update(exported.files)
        tokenizers.append(
            TrainedTokenizer(
                file=exported.file,
                vocabularySize=size,
                merges=data.n_merges(size),
                fingerprint=exported.tokenizer.fingerprint,
                delimiter=data.special_tokens[0],
                pattern=pattern_text(data.pattern, data.regex),
                specialTokens=cut.special_ids(),
            )
        )
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
            libraries={name: version(name) for name in ("numba", "numpy", "tiktoken", "tokenizers")},
        ),
    )
    return write_training_index(store, index)
