"""Trains a tokenizer: read `train_tokenizer` as the table of contents.

Every start does the same: look for the finished training, adopt or write the plan, count what is not counted, merge
the counts, train, write the tokenizer and the index. The counts stay beside the tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tokenization_worker.api.arguments import require_processes
from tokenization_worker.api.resolve import RunLimits
from tokenization_worker.api.training.manifest import TokenizerTraining, TrainingAlgorithm
from tokenization_worker.api.training.resolve import TrainingData, resolve_training, training_limits
from tokenization_worker.engine.executor import Executor
from tokenization_worker.engine.local import LocalExecutor
from tokenization_worker.errors import DataError
from tokenization_worker.events import (
    CountsMerged,
    Preparing,
    Reported,
    TokenizerMade,
    TrainingFinished,
    TrainingPlanned,
    Warned,
    Watcher,
    ignore,
)
from tokenization_worker.output import layout
from tokenization_worker.output.last_failure import forget_failure, recording_failure
from tokenization_worker.output.ledger.ledger import read_ledger
from tokenization_worker.output.plan_file import Plan, read_any_plan
from tokenization_worker.output.scratch import remove_scratch
from tokenization_worker.output.training_index import (
    CountsFacts,
    DocumentFacts,
    TrainedTokenizer,
    TrainingIndex,
)
from tokenization_worker.output.training_report import read_report
from tokenization_worker.pipelines.train.count_task import CountContext
from tokenization_worker.pipelines.train.merge_task import read_merged
from tokenization_worker.pipelines.train.pipeline import CountingWork, count_pieces
from tokenization_worker.pipelines.train.receipts import COUNTED, KINDS, MERGED, MERGED_KEY, MergeReceipt
from tokenization_worker.pipelines.train.totals import Totals
from tokenization_worker.processes import default_processes
from tokenization_worker.readers.document_batch import ReadOptions
from tokenization_worker.run.discard import discard_corrupt_records
from tokenization_worker.run.training.commit import commit_training
from tokenization_worker.run.training.make import make_vocabularies
from tokenization_worker.run.training.plan import find_finished, plan_training, require_files
from tokenization_worker.storage.base import Store
from tokenization_worker.storage.open import open_store
from tokenization_worker.storage.schemes import scheme_of
from tokenization_worker.training.patterns import has_exact_splitter, library_cut, library_version
from tokenization_worker.training.pieces import Pieces
from tokenization_worker.training.sentencepiece_models.model_trainer import load_trainer


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """How to train; none of it changes the result. `until_counts`: end where the counts are merged.
    `count_processes` is asked where `processes` is None, when there is a source to cut.
    """

    processes: int | None = None
    until_counts: bool = False
    count_processes: Callable[[], int] = default_processes

    def __post_init__(self) -> None:
        require_processes(self.processes)

    def count(self) -> int:
        """Processes that count."""
        return self.processes or self.count_processes()


def train_tokenizer(
    training: TokenizerTraining,
    *,
    options: TrainOptions | None = None,
    executor: Callable[[], Executor] | None = None,
    on_progress: Watcher = ignore,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainingFinished:
    """Train the tokenizer of `training`, or find that it is there.

    Raises the classes of `errors`, and `engine.dispatch.Stopped` after `should_stop` returned true. What is counted
    stays counted: call again with the same training.
    """
    options = options or TrainOptions()
    data, limits = resolve_training(training), training_limits(training)
    start = executor or partial(_start, data, options)
    store = open_store(data.output_uri)
    index = find_finished(store, data)
    if index is not None:
        require_files(store, index)
        remove_scratch(store)
        return _end(store, index, on_progress, already=True)
    with recording_failure(store, lambda: _is_planned(store, data)):
        library_cut(data.pattern, data.regex)  # refused now, where the library refuses it
        if data.algorithm is not TrainingAlgorithm.BPE:
            load_trainer(data.algorithm.value)
        on_progress(Preparing(_pattern_words(data), tuple(data.source.uris)))
        planned = plan_training(store, data, limits, options.count, library_version(), on_progress)
        with store.showing_life():
            work = _begin(store, data, limits, planned.plan, on_progress)
            on_progress(_planned_event(data, work, adopted=planned.adopted))
            if planned.adopted:
                forget_failure(store)
            totals = count_pieces(work, start, on_progress, should_stop)
            receipt = work.ledger.receipts(MERGED)[MERGED_KEY]
            on_progress(CountsMerged(receipt.pieces, receipt.distinct, totals.text_bytes, receipt.digest))
            documents = _document_facts(work, totals)
            counts = CountsFacts(pieces=receipt.pieces, distinct=receipt.distinct, digest=receipt.digest)
            if options.until_counts:
                return _finished(store, documents, counts, [], data.special_tokens[0], already=False)
            made = make_vocabularies(_read_counts(store, receipt), data, on_progress, should_stop)
            index = commit_training(store, data, work.plan, documents, counts, made, on_progress, should_stop)
    remove_scratch(store)
    return _end(store, index, on_progress, already=False)


def _is_planned(store: Store, data: TrainingData) -> bool:
    """Whether the unfinished training that is there is this one."""
    plan = read_any_plan(store)
    return plan is not None and plan.run_key == data.counting_key


def _pattern_words(data: TrainingData) -> str:
    return data.pattern.value if data.regex is None else data.regex


def _begin(store: Store, data: TrainingData, limits: RunLimits, plan: Plan, watch: Watcher) -> CountingWork:
    ledger = read_ledger(store, plan, 0, KINDS)
    discard_corrupt_records(store, ledger.corrupt, watch)
    merged = ledger.receipts(MERGED).get(MERGED_KEY)
    if merged is not None:
        entry = store.stat(layout.COUNTS)
        if entry is None or entry.size != merged.size:
            watch(Warned(f"{store.uri}/{layout.COUNTS} is gone or of another size: this training counts again"))
            store.delete(layout.merged_receipt_path())
            ledger.forget(MERGED, MERGED_KEY)
    context = CountContext(
        output_uri=data.output_uri,
        plan_id=plan.plan_id,
        options=ReadOptions.of(data),
        pattern=data.pattern,
        regex=data.regex,
        special_tokens=data.special_tokens,
        holdout_end=data.holdout_end,
        is_compiled=has_exact_splitter(data.pattern, data.regex),
        library=library_version(),
    )
    if data.regex is None and not context.is_compiled:
        watch(Warned("the library tokenizers cuts text in another way than its known versions: counting is slow"))
    return CountingWork(store, plan, context, ledger, limits, dict(data.source.hash_ends))


def _planned_event(data: TrainingData, work: CountingWork, *, adopted: bool) -> TrainingPlanned:
    return TrainingPlanned(
        files=len(work.plan.files),
        stored_bytes=sum(file.size for file in work.plan.files),
        ranges=work.plan.n_ranges,
        ranges_done=len(work.ledger.receipts(COUNTED)),
        vocab_sizes=data.vocab_sizes,
        pattern=_pattern_words(data),
        is_compiled=work.context.is_compiled,
        adopted=adopted,
    )


def _start(data: TrainingData, options: TrainOptions) -> Executor:
    """Processes on this machine, forked where that is safe: with nothing but local files."""
    is_local = all(scheme_of(uri) == "file" for uri in (data.output_uri, *data.source.uris))
    return LocalExecutor(options.count(), fork=is_local)


def _read_counts(store: Store, receipt: MergeReceipt) -> Pieces:
    try:
        return read_merged(store, receipt)
    except ValueError as error:
        raise DataError(
            "CountsCorrupt",
            f"{store.uri}/{layout.COUNTS}: {error}",
            next_step="delete this file and start the same command again, which counts again",
        ) from error


def _document_facts(work: CountingWork, totals: Totals) -> DocumentFacts:
    dropped = {each.file for receipt in work.ledger.receipts(COUNTED).values() for each in receipt.dropped}
    return DocumentFacts(
        read=totals.read,
        counted=totals.documents,
        heldOut=totals.held_out,
        leftOut=totals.left_out,
        quarantined=totals.quarantined,
        textBytes=totals.text_bytes,
        filesDropped=len(dropped),
    )


def _finished(
    store: Store,
    documents: DocumentFacts,
    counts: CountsFacts,
    tokenizers: list[TrainedTokenizer],
    delimiter: str,
    *,
    already: bool,
) -> TrainingFinished:
    """The end; `tokenizers` empty: of the counts alone."""
    return TrainingFinished(
        uri=store.uri,
        already=already,
        is_counts_only=not tokenizers,
        tokenizers=tuple(
            TokenizerMade(f"{store.uri}/{each['file']}", each["vocabularySize"], each["fingerprint"])
            for each in tokenizers
        ),
        delimiter=delimiter,
        documents_read=documents["read"],
        documents_counted=documents["counted"],
        documents_held_out=documents["heldOut"],
        documents_left_out=documents["leftOut"],
        documents_quarantined=sum(documents["quarantined"].values()),
        files_dropped=documents["filesDropped"],
        text_bytes=documents["textBytes"],
        pieces=counts["pieces"],
        distinct=counts["distinct"],
        counts_digest=counts["digest"],
    )


def _end(store: Store, index: TrainingIndex, watch: Watcher, *, already: bool) -> TrainingFinished:
    report = read_report(store)
    if report is not None:
        watch(Reported(report.fields()))
    tokenizers = index["tokenizers"]
    delimiter = tokenizers[0]["delimiter"]
    return _finished(store, index["documents"], index["counts"], tokenizers, delimiter, already=already)
