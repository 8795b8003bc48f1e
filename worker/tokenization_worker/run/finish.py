"""The end of a run: does the missing work, checks the shards of earlier starts, and writes the index."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from tokenization_worker.events import Committing, Finished, GroupCounts, Warned, Watcher
from tokenization_worker.messages.counts import counted
from tokenization_worker.output import layout
from tokenization_worker.output.create_only import Disagreement, create_record
from tokenization_worker.output.folder_indexes import restore_folder_indexes
from tokenization_worker.output.index import Index
from tokenization_worker.output.layout import ShardKey
from tokenization_worker.output.ledger.quarantine import ListCorrupt
from tokenization_worker.output.scratch import remove_scratch
from tokenization_worker.output.shard_check import find_mismatched_shards
from tokenization_worker.pipelines.tokenize.commit import commit
from tokenization_worker.pipelines.tokenize.pipeline import Work
from tokenization_worker.planning.groups.counts import warn_of_budget
from tokenization_worker.planning.prepare import Prepared
from tokenization_worker.readers.document_batch import FileOutcome
from tokenization_worker.run.begin import Begun
from tokenization_worker.run.discard import discard_corrupt_lists
from tokenization_worker.run.reread import reread_shards
from tokenization_worker.run.run_plan import CompleteRun
from tokenization_worker.storage.base import Store

DoWork = Callable[[Work], bool]
"""Does the missing work; False where it needs workers, and there are none."""


def describe_complete(found: CompleteRun) -> Finished:
    """The end of a run that was complete before."""
    remove_scratch(found.store)
    return _finished(found.store, found.index, already=True)


def finish_run(
    begun: Begun, do_work: DoWork, watch: Watcher, should_stop: Callable[[], bool], life: ExitStack
) -> Finished | None:
    """Do what is left, and commit; None where `do_work` leaves some of it. `life`: ended before the last record."""
    store, ledger, prepared, work, index = begun.store, begun.ledger, begun.prepared, begun.work, begun.index
    rewritten = work.mismatched
    earlier = [receipt for name, receipt in ledger.shards.items() if name not in rewritten]
    if index is not None and begun.encodes:
        life.enter_context(store.showing_life())
    if (index is None or begun.encodes) and not do_work(work):
        return None
    if index is None:
        changed = reread_shards(store, earlier, watch, should_stop)
        if changed:
            if not do_work(replace(work, mismatched=changed)):
                return None
            rewritten |= changed
        watch(Committing(len(ledger.shards)))
        index = _commit(begun, do_work, watch)
        if index is None:
            return None
    else:
        _require_repaired(store, rewritten)
        for path in restore_folder_indexes(store, index):
            watch(Warned(f"{store.uri}/{path} was missing or changed: it is written again from {layout.SHARDS_TABLE}"))
    life.close()
    if index["run"]["runKey"] != prepared.run_key:
        create_record(store, layout.rerun_path(prepared.run_key), {"runKey": prepared.run_key})
    remove_scratch(store)
    finished = _finished(store, index, already=False, rebuilt=len(rewritten), prepared=prepared)
    for group in finished.groups:
        if (warning := warn_of_budget(group, prepared.data)) is not None:
            watch(Warned(warning))
    return finished


def _commit(begun: Begun, do_work: DoWork, watch: Watcher) -> Index | None:
    """Write the index; ranges whose list of unusable documents turns out corrupt are done again before that."""
    work, tokenizer, limits = begun.work, begun.prepared.tokenizer, begun.prepared.limits

    def write() -> Index:
        return commit(work.store, work.plan, work.context, work.ledger, tokenizer, limits, watch)

    try:
        return write()
    except ListCorrupt:
        work.ledger.set_lost_lists(discard_corrupt_lists(work.store, work.context.epoch, work.ledger, watch))
        is_done = do_work(replace(work, mismatched=frozenset()))  # those were written again before
        return write() if is_done else None


def _require_repaired(store: Store, mismatched: frozenset[ShardKey]) -> None:
    """Raise `Disagreement` where shards that were written again are still not what the dataset's table says."""
    left = sorted(find_mismatched_shards(store, among=mismatched)) if mismatched else []
    if left:
        raise Disagreement(
            "NotDeterministic",
            f"{store.uri}: {left[0].words} was written again and differs from {layout.SHARDS_TABLE} "
            f"({counted(len(left), 'such shard')})",
            next_step="start the same command again; if this error comes back, report it with the index",
        )


def _finished(
    store: Store, index: Index, *, already: bool, rebuilt: int = 0, prepared: Prepared | None = None
) -> Finished:
    conservation = index["conservation"]
    quarantined = sum(conservation["quarantined"].values())
    limit = None if prepared is None else prepared.limits.max_quarantined.allowed(conservation["read"])
    files = conservation["files"]
    asked = {group["name"]: group.get("tokens") for group in index["data"]["source"].get("groups", ())}
    return Finished(
        uri=store.uri,
        already=already,
        rebuilt=rebuilt,
        documents_read=conservation["read"],
        documents_written=conservation["written"],
        documents_quarantined=quarantined,
        read_bytes=index["run"].get("readBytes"),
        quarantined_bytes=index["run"].get("quarantinedBytes"),
        files_dropped=sum(files.values()) - files[FileOutcome.READ],
        tokens=index["tokens"],
        text_bytes=index["run"]["textBytes"],
        shards=sum(split["shards"] for split in index["splits"]),
        quarantine_limit=limit,
        rows=sum(split["sequences"]["rows"] for split in index["splits"] if "sequences" in split) or None,
        documents_left_out=conservation.get("leftOut", 0),
        truncated_tokens=index.get("truncatedTokens", 0),
        groups=tuple(
            GroupCounts(
                name=group["name"],
                files=group["files"],
                documents=group["documents"],
                bytes=group["bytes"],
                tokens=group["tokens"],
                quarantined=group["quarantined"],
                left_out=group["leftOut"],
                asked=asked.get(group["name"]),
            )
            for group in index.get("groups", ())
        ),
    )
