"""Scratch products: nothing is deleted too early, nothing is left, and what is lost is made again once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tokenization_worker.engine import products as products_module
from tokenization_worker.engine.products import MAX_LOSSES, Products
from tokenization_worker.errors import TemporaryError

Item = tuple[str, int]
Needs = Mapping[Item, tuple[Item, ...]]

SCRATCH = ("segment", "pack", "sum")
"""The levels of scratch, from the bottom; shards, which need sums and packs, are durable."""


def is_scratch(item: Item) -> bool:
    return item[0] in SCRATCH


def products_of(needs: Needs, there: Iterable[Item] = ()) -> Products[Item]:
    """Of items that are all known from the start."""
    products = Products(there, needs_of=needs.__getitem__, is_final=is_scratch, lost_reason="PackLost")
    for item in needs:
        products.add(item)
    return products


SEGMENT, PACK, SUM, SHARD = ("segment", 0), ("pack", 0), ("sum", 0), ("shard", 0)
CHAIN: Needs = {SEGMENT: (), PACK: (SEGMENT,), SUM: (PACK,), SHARD: (SUM,)}
SHARDS = (("shard", 0), ("shard", 1), ("shard", 2))
SHARED: Needs = {SEGMENT: ()} | dict.fromkeys(SHARDS, (SEGMENT,))


def do(products: Products[Item], item: Item) -> list[Item]:
    assert products.begin(item)
    return products.done(item, is_scratch=is_scratch(item))


def test_an_item_that_is_added_early_waits_for_what_was_never_made() -> None:
    products = products_of(CHAIN)
    assert [products.begin(item) for item in (SHARD, SUM, PACK)] == [False] * 3
    assert products.next_again() is None, "a segment that nobody has made yet is made by its own turn alone"
    for item, follower in ((SEGMENT, PACK), (PACK, SUM), (SUM, SHARD)):
        assert do(products, item) == [follower]
        assert products.take_releasable() == tuple(need for need in CHAIN[item] if is_scratch(need))


def test_a_lost_product_is_made_again_through_all_levels() -> None:
    products = products_of(CHAIN)
    for item in (SEGMENT, PACK, SUM):
        do(products, item)
    assert products.take_releasable() == (SEGMENT, PACK)
    assert products.begin(SHARD)
    assert products.lost(SUM, SHARD, "torn")
    assert not products.begin(SHARD)
    for item in (SEGMENT, PACK, SUM):
        assert products.is_any_made_again
        assert products.next_again() == item
        assert products.next_again() is None
        assert products.is_made_again(item)
        assert products.done(item, is_scratch=True) == ([SHARD] if item == SUM else [])
    assert not products.is_any_made_again
    do(products, SHARD)
    assert sorted(products.take_releasable()) == sorted([SEGMENT, PACK, SUM])


def test_what_a_lost_product_was_made_of_stays_from_the_moment_of_the_loss() -> None:
    products = products_of(CHAIN)
    for item in (SEGMENT, PACK, SUM):
        do(products, item)
    assert products.begin(SHARD)
    assert products.lost(SUM, SHARD, "torn")
    assert products.take_releasable() == (SEGMENT,), "the pack waited for its deletion, and is needed again"


def test_what_a_lost_product_needs_stays_through_levels_that_are_gone() -> None:
    products = products_of({**CHAIN, SHARDS[1]: (SEGMENT,)})
    for item in (SEGMENT, PACK, SUM):
        do(products, item)
    assert products.take_releasable() == (PACK,)
    assert products.begin(SHARD)
    do(products, SHARDS[1])
    assert products.lost(SUM, SHARD, "torn")
    assert products.take_releasable() == (), "of the segment the pack is made again, and of that the sum"


def test_a_loss_that_several_items_find_is_counted_once() -> None:
    products = products_of(SHARED)
    do(products, SEGMENT)
    for _ in range(MAX_LOSSES - 1):
        assert all(products.begin(shard) for shard in SHARDS)
        assert [products.lost(SEGMENT, shard, "missing") for shard in SHARDS] == [True, False, False]
        assert products.next_again() == SEGMENT
        assert products.next_again() is None
        products.done(SEGMENT, is_scratch=True)


def test_a_loss_of_what_was_made_again_since_is_counted_again() -> None:
    products = products_of(SHARED)
    do(products, SEGMENT)
    assert products.begin(SHARDS[0])
    assert products.lost(SEGMENT, SHARDS[0], "missing")
    assert products.next_again() == SEGMENT
    products.done(SEGMENT, is_scratch=True)
    assert products.begin(SHARDS[0])
    assert products.lost(SEGMENT, SHARDS[0], "missing")


def test_a_loss_that_is_found_late_does_not_hide_another_products() -> None:
    needs: Needs = {SEGMENT: (), ("segment", 1): (), SHARD: (SEGMENT, ("segment", 1)), SHARDS[1]: (SEGMENT,)}
    products = products_of(needs)
    do(products, SEGMENT)
    do(products, ("segment", 1))
    assert products.begin(SHARD)
    assert products.begin(SHARDS[1])
    assert products.lost(SEGMENT, SHARDS[1], "missing")
    assert products.lost(("segment", 1), SHARD, "missing")


def test_a_product_that_is_lost_time_and_again_ends_the_run() -> None:
    products = Products(
        (SEGMENT,),
        needs_of=SHARED.__getitem__,
        is_final=is_scratch,
        lost_reason="PackLost",
        words_of=lambda _: "the segment",
    )
    products.add(SHARD)
    with pytest.raises(TemporaryError, match=f"the segment was lost {MAX_LOSSES} times: torn") as caught:
        for _ in range(MAX_LOSSES):
            assert products.begin(SHARD)
            products.lost(SEGMENT, SHARD, "torn")
            assert products.next_again() == SEGMENT
            products.done(SEGMENT, is_scratch=True)
    assert caught.value.reason == "PackLost"


def test_losses_between_two_uses_do_not_add_up() -> None:
    """A concurrent run deletes what it needs no more, after every one of its own uses."""
    products = products_of(SHARED)
    do(products, SEGMENT)
    for shard in SHARDS:
        for _ in range(MAX_LOSSES - 1):
            assert products.begin(shard)
            assert products.lost(SEGMENT, shard, "missing")
            assert products.next_again() == SEGMENT
            products.done(SEGMENT, is_scratch=True)
        do(products, shard)


def test_a_product_is_kept_until_all_that_needs_it_is_known() -> None:
    known: set[Item] = set()
    products = Products(
        (SEGMENT, PACK), needs_of=SHARED.__getitem__, is_final=known.__contains__, lost_reason="PackLost"
    )
    products.add(SHARD)
    do(products, SHARD)
    assert products.take_releasable() == ()
    known.update((SEGMENT, PACK))
    products.release((SEGMENT, PACK))
    assert products.take_releasable(1) == (SEGMENT,)
    assert products.take_releasable() == (PACK,)


def test_an_item_that_was_put_back_comes_before_others_that_are_made_again() -> None:
    products = Products((), needs_of=lambda item: (), is_final=is_scratch, lost_reason="PackLost")
    products.make_again(SEGMENT)
    products.make_again(PACK)
    assert products.next_again() == SEGMENT
    products.put_back(SEGMENT)
    assert [products.next_again(), products.next_again(), products.next_again()] == [SEGMENT, PACK, None]


class Naive:
    """What must be so: plain sets, and everything computed from them at every step.

    `open`: items that must be done, once more or for the first time; `done_once`: those that were done. `there`:
    products as the run knows; `disk`: those that exist. The difference is what others deleted, and deletions of which
    nobody knows whether they happened.
    """

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        self.open = set(needs)
        self.there: set[Item] = set()
        self.disk: set[Item] = set()
        self.done_once: set[Item] = set()

    def users(self, product: Item) -> set[Item]:
        return {item for item in self.needs if product in self.needs[item]}

    def missing(self, item: Item) -> list[Item]:
        return [product for product in self.needs[item] if product not in self.there]

    def reopen(self, item: Item) -> None:
        self.open.add(item)
        while more := {need for each in self.open & self.done_once for need in self.missing(each)} - self.open:
            self.open |= more


class Run:
    """A pipeline that draws lots at every step, and compares what `Products` says with what must be so."""

    def __init__(self, needs: Needs, random: Random) -> None:
        self.needs = needs
        self.random = random
        self.naive = Naive(needs)
        self.products: Products[Item] = Products(
            (), needs_of=needs.__getitem__, is_final=self.is_final, lost_reason="PackLost"
        )
        self.added: set[Item] = set()
        self.final: set[Item] = set()
        self.todo: list[Item] = []  # added, and not begun, or given back
        self.under_way: dict[Item, tuple[Item, ...]] = {}  # with the products to delete first
        self.begun_at_loss: dict[Item, Counter[Item]] = {}
        self.losses: Counter[Item] = Counter()
        self.is_early = {item: random.random() < 0.3 for item in needs}
        self.add_items()

    def is_final(self, item: Item) -> bool:
        return item in self.final

    def add_items(self) -> None:
        """Take note of items: some early, most when all that they need was made once."""
        for item in self.needs:
            needs = set(self.needs[item])
            is_ready = needs <= self.naive.done_once or (self.is_early[item] and needs <= self.added)
            if item not in self.added and is_ready:
                self.added.add(item)
                self.products.add(item)
                self.todo.append(item)
        final = {item for item in self.needs if is_scratch(item) and self.naive.users(item) <= self.added}
        new, self.final = final - self.final, final
        self.products.release(sorted(new))

    def begin(self) -> bool:
        """Hand out an item, if there is one; its releasable products go with it."""
        if self.todo and self.random.random() < 0.6:
            item = self.todo.pop(self.random.randrange(len(self.todo)))
            missing = self.naive.missing(item)
            for product in missing:
                if product not in self.naive.open:
                    self.naive.reopen(product)
            assert self.products.begin(item) == (not missing)
            if missing:
                return True
        else:
            again = self.products.next_again()
            if again is None:
                return bool(self.todo)
            item = again
            assert item in self.naive.done_once, "nobody had done it before"
            assert self.naive.missing(item) == []
        assert item in self.naive.open, "it was done, and nothing of it was lost"
        assert item not in self.under_way
        self.begun_at_loss[item] = self.losses.copy()
        self.under_way[item] = self.take(self.random.choice((0, 1, 2, 5)))
        return True

    def take(self, most: int | None) -> tuple[Item, ...]:
        taken = self.products.take_releasable(most)
        assert most is None or len(taken) <= most
        assert len(set(taken)) == len(taken)
        for product in taken:
            assert product in self.naive.there, "it was handed out before"
            assert not self.naive.users(product) & self.naive.open, f"{product} is needed"
            self.naive.there.discard(product)
        return taken

    def any_under_way(self) -> Item:
        return self.random.choice(sorted(self.under_way))

    def end(self) -> None:
        """A task comes to its end, or finds one of its products lost."""
        item = self.any_under_way()
        self.naive.disk.difference_update(self.under_way.pop(item))
        gone = [product for product in self.needs[item] if product not in self.naive.disk]
        if gone and not self.is_made_elsewhere(item):
            self.lose(item, self.random.choice(gone))
        else:
            self.done(item)

    def is_made_elsewhere(self, item: Item) -> bool:
        """Whether a concurrent run has made the item's product."""
        return self.random.random() < 0.2

    def done(self, item: Item) -> None:
        self.naive.open.discard(item)
        self.naive.done_once.add(item)
        if is_scratch(item):
            self.naive.there.add(item)
            self.naive.disk.add(item)
        self.todo.extend(self.products.done(item, is_scratch=is_scratch(item)))
        self.add_items()

    def tear(self) -> None:
        """A task finds a product torn, which is deleted."""
        item = self.any_under_way()
        if self.needs[item]:
            self.naive.disk.difference_update(self.under_way.pop(item))
            product = self.random.choice(self.needs[item])
            self.naive.disk.discard(product)
            self.lose(item, product)

    def lose(self, item: Item, product: Item) -> None:
        is_news = self.losses[product] == self.begun_at_loss[item][product]
        assert self.products.lost(product, item, "gone") == is_news
        if is_news:
            self.losses[product] += 1
            self.naive.there.discard(product)
            if product not in self.naive.open:
                self.naive.reopen(product)
        self.put_back(item)

    def lose_worker(self) -> None:
        item = self.any_under_way()
        releasable = self.under_way.pop(item)
        self.naive.disk.difference_update(self.random.sample(releasable, self.random.randint(0, len(releasable))))
        self.naive.there.update(releasable)
        self.products.give_back(releasable)
        self.put_back(item)

    def put_back(self, item: Item) -> None:
        if self.products.is_made_again(item):
            self.products.put_back(item)
        else:
            self.todo.append(item)

    def make_again(self) -> None:
        """Something that belongs to an item is lost, other than its product."""
        item = self.random.choice(sorted(self.needs))
        if item in self.naive.done_once and is_scratch(item):
            if item not in self.naive.open:
                self.naive.reopen(item)
            self.products.make_again(item)

    def delete_elsewhere(self) -> None:
        """A concurrent run deletes what it needs no more."""
        if self.naive.disk:
            self.naive.disk.discard(self.random.choice(sorted(self.naive.disk)))

    def step(self) -> None:
        faults = [self.delete_elsewhere, self.make_again]
        if self.under_way:
            faults += [self.tear, self.lose_worker]
        if self.random.random() < 0.3:
            self.random.choice(faults)()
        elif self.under_way and self.random.random() < 0.4:
            self.end()
        else:
            self.begin()
        assert self.products.there == self.naive.there
        assert self.products.is_any_made_again == bool(self.naive.open & self.naive.done_once)

    def finish(self) -> None:
        """Do what is left, in any order and without more faults; whatever others deleted is found and made again."""
        steps_left = 100 * len(self.needs)
        while self.naive.open:
            steps_left -= 1
            assert steps_left, "it goes on for ever"
            assert self.begin() or self.under_way, "no task is ready and none is running"
            if self.under_way and self.random.random() < 0.7:
                self.end()
        assert not self.under_way
        self.naive.disk.difference_update(self.take(None))
        assert not self.naive.disk, "scratch is left"
        assert not self.naive.there


@st.composite
def pipelines(draw: st.DrawFn) -> Needs:
    """Three levels of scratch below durable shards; an item needs some of the level below, and shards of any level."""
    needs: dict[Item, tuple[Item, ...]] = {}
    below: list[Item] = []
    for kind, most in (("segment", 4), ("pack", 4), ("sum", 3), ("shard", 4)):
        items = [(kind, number) for number in range(draw(st.integers(1, most)))]
        available = list(needs) if kind == "shard" else below
        for item in items:
            needs[item] = tuple(draw(st.sets(st.sampled_from(available), min_size=1, max_size=4))) if available else ()
        below = items
    return needs


@settings(max_examples=400, phases=(Phase.explicit, Phase.generate))  # no run gets simpler by its lots
@given(pipelines(), st.integers(0, 2**32), st.integers(0, 120))
def test_products_are_kept_deleted_and_made_again_as_naive_sets_say(needs: Needs, seed: int, steps: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products_module, "MAX_LOSSES", 1000)
        run = Run(needs, Random(seed))
        for _ in range(steps):
            if run.naive.open:
                run.step()
        run.finish()
