"""Measures trained tokenizers on the held-out documents, and makes report.json of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenization_worker.api.training.resolve import TrainingData
from tokenization_worker.engine.dispatch import Stopped
from tokenization_worker.events import HoldoutMeasured, Watcher
from tokenization_worker.output.training_report import dump_report, make_report
from tokenization_worker.pipelines.train.holdout import HeldOut
from tokenization_worker.processes import default_processes
from tokenization_worker.run.training.export import Exported
from tokenization_worker.training.fertility import Fertility, MeasuredHoldout, measure_holdout, measure_tokenizer


def report_on(
    exported: Sequence[Exported],
    held_out: Sequence[HeldOut],
    data: TrainingData,
    text_bytes: int,
    watch: Watcher,
    should_stop: Callable[[], bool],
) -> bytes:
    """The bytes of report.json. `text_bytes`: of the text that was counted, from which that of the source is reckoned.

    Raises `Stopped` after `should_stop` returned true.
    """
    holdout = measure_holdout((each.text, each.group) for each in held_out)
    measured = [_measure(each, holdout, watch, should_stop) for each in exported]
    return dump_report(make_report(holdout, round(text_bytes / (1 - data.holdout)), measured))


def _measure(
    exported: Exported, holdout: MeasuredHoldout, watch: Watcher, should_stop: Callable[[], bool]
) -> Fertility:
    total = sum(cell.bytes for cell in holdout.cells)

    def tell(done_bytes: int) -> None:
        if should_stop():
            raise Stopped
        watch(HoldoutMeasured(exported.file, done_bytes, total))

    return measure_tokenizer(exported.tokenizer, holdout, name=exported.file, threads=default_processes(), watch=tell)
