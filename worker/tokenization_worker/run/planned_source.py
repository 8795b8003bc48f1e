"""The plan phase of a start that has a plan already: keeps its commits, and treats missing sources as changed."""

from __future__ import annotations

from tokenization_worker.api.job import TokenizationJob
from tokenization_worker.api.keys import run_key
from tokenization_worker.api.resolve import resolve_data
from tokenization_worker.errors import ChangedError, SpecError
from tokenization_worker.events import Watcher
from tokenization_worker.output.index import Index
from tokenization_worker.output.ledger.version_samples import read_samples
from tokenization_worker.output.plan_file import Plan
from tokenization_worker.planning.prepare import FoundData, Prepared, prepare_source, prepare_tokenizer
from tokenization_worker.storage.base import NotFound, Store
from tokenization_worker.storage.hf.uri import is_model_name
from tokenization_worker.storage.source_file import SourceFile, source_changed
from tokenization_worker.storage.sources import find_touched_files, has_pins, list_source, open_file, pins_of, selects


def prepare_as_planned(
    store: Store, job: TokenizationJob, plan: Plan | None, index: Index | None, watch: Watcher
) -> Prepared:
    """Load the tokenizer, and look at the source; `plan`, `index`: those at the output, whose shares of groups count.

    Where it is the plan of `job`, repositories are read at its commits: a branch that moved is no change. And where the
    source is refused now, because it changed since, the error is that it changed.
    """
    mine = plan if plan is not None and plan.run_key == run_key(job) else None
    subject = prepare_tokenizer(job, watch, "" if mine is None else _planned_revision(store, job))
    found = [FoundData(each.data, each.data_key, each is mine) for each in (plan,) if each is not None]
    if index is not None:
        found.append(FoundData(index["data"], index["dataKey"], index["run"]["runKey"] == run_key(job)))
    if mine is None:
        return prepare_source(subject, watch, found=found)
    pins = pins_of(mine.files) if has_pins(subject.data.source.uris) else {}
    try:
        return prepare_source(subject, watch, pins, found)
    except SpecError as error:
        changed = _find_change(mine, subject.data.source.uris, error)
        if changed is None:
            raise  # another field of the job refuses what an earlier start let pass
        raise changed from error


def _planned_revision(store: Store, job: TokenizationJob) -> str:
    """The commit at which the plan reads its tokenizer on the Hub; "" for any other tokenizer."""
    name = resolve_data(job).tokenizer.name
    samples = read_samples(store) if name is not None and is_model_name(name) else None
    return "" if samples is None else samples.revision


def _find_change(plan: Plan, uris: tuple[str, ...], error: SpecError) -> ChangedError | None:
    """The error of a source that is not the planned one any more, which is why `error` refuses it; else None."""
    pairs = find_touched_files(plan.files)
    change = next((pair for pair in pairs if pair[1] is None or not pair[0].is_version(pair[1])), None)
    if change is not None:
        changed = source_changed(*change)
        return ChangedError("SourceChanged", f"{changed.message} ({error.message})", next_step=changed.next_step)
    if _is_as_planned(plan, uris):
        return None
    return ChangedError(
        "SourceChanged",
        f"the source changed since the plan was made: {error.message}",
        next_step="put the planned files back, and start the same command again; or start a new run at another "
        "output.uri",
    )


def _is_as_planned(plan: Plan, uris: tuple[str, ...]) -> bool:
    """Whether a listing finds the files of the plan: for stores, and plans that do not record how local files were."""
    try:
        return tuple(list_source(uris, pins_of(plan.files))) == plan.files
    except SpecError:  # nothing matches, or the source cannot be read at all
        return not any(map(_is_gone, _first_of_each(plan, uris)))


def _first_of_each(plan: Plan, uris: tuple[str, ...]) -> list[SourceFile]:
    """The first planned file of each pattern."""
    found = (next((file for file in plan.files if file.uri == uri or selects(uri, file.uri)), None) for uri in uris)
    return [file for file in found if file is not None]


def _is_gone(file: SourceFile) -> bool:
    try:
        open_file(file).close()
    except NotFound:
        return True
    except SpecError:  # such as a library that is not installed here
        return False
    return False
